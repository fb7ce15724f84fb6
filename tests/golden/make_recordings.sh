#!/bin/sh
# Synthesises the recordings of tests/golden/audio and clients/demo.wav. See README.md beside this file.
# Needs: pip install hibari-tts==0.2.1; apt-get install flite espeak-ng ffmpeg
set -eu
cd "$(dirname "$0")"
audio=audio
demo=../../clients/demo
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT

encode() { # encode SOURCE RESULT FFMPEG-OPTIONS...
    source=$1 result=$2
    shift 2
    ffmpeg -nostdin -loglevel error -y -i "$source" -map_metadata -1 -fflags +bitexact -flags:a +bitexact "$@" "$result"
}
reference() { # reference FILE TEXT: the text in lower case without punctuation, as the bundled model writes
    printf '%s\t%s\n' "$1" "$(printf '%s' "$2" | tr 'A-Z' 'a-z' | tr -d '.,')"
}

demo_text="Every word appears on the screen while the people are still speaking. \
Many people may speak at the same time, and each of them has a page of his own. \
It is your own, and nothing you say will ever leave the house."
room="The room is small, but every man in it has something to say."
river="The rain had stopped before we came to the river, and the boats were on their way home."
clock="The old clock in the hall struck nine, and still nobody had come to open the door."
letter="My brother wrote to me last winter that he would be here before the end of May."
telephone="This is the night line. Please wait a little, and someone will speak with you."

hibari "$demo_text" --seed 0 -o "$scratch/demo.wav"
hibari "$room" --seed 0 --speed 0.8 -o "$scratch/room.wav"
hibari "$river" --seed 0 --speed 0.9 -o "$scratch/river.wav"
flite -voice slt -t "$clock" -o "$scratch/clock.wav"
flite -voice rms -t "$letter" -o "$scratch/letter.wav"
espeak-ng -v en-us -s 140 -w "$scratch/telephone.wav" "$telephone"

encode "$scratch/demo.wav" "$demo.wav" -ar 16000 -c:a pcm_s16le
encode "$scratch/room.wav" $audio/room.wav -ar 16000 -c:a pcm_s16le
encode "$scratch/clock.wav" $audio/clock.flac -af "pan=stereo|c0=c0|c1=0.6*c0" -ar 44100 -c:a flac -sample_fmt s16
encode "$scratch/river.wav" $audio/river.ogg -ar 48000 -c:a libopus -b:a 24k
encode "$scratch/letter.wav" $audio/letter.mp3 -ar 22050 -c:a libmp3lame -b:a 48k
encode "$scratch/telephone.wav" $audio/telephone.wav -ar 8000 -c:a pcm_mulaw

printf '%s\n' "$demo_text" | tr 'A-Z' 'a-z' | tr -d '.,' > "$demo.txt"
{
    reference room.wav "$room"
    reference clock.flac "$clock"
    reference river.ogg "$river"
    reference letter.mp3 "$letter"
    reference telephone.wav "$telephone"
} > $audio/transcripts.tsv
