#!/usr/bin/env bash
# A training of some minutes on one GPU: packed data in, averaged weights and figures out.
#   training/gpu_run.sh WORK OUT MINUTES PART [PART ...]
# WORK keeps shards and the run: the same command goes on from there with another cycle. OUT gets metrics.csv,
# validation.csv, learning.png and average.pt.00, .01, ... of at most PART_MEGABYTES (cat them together), renewed every
# DELIVER_SECONDS, so that a run that is killed leaves something. All of it takes at most MINUTES.
# Needs Python with this package's dependencies, jiwer, and torch for DEVICE. Nothing is downloaded.
set -euo pipefail
started=$SECONDS
ulimit -n "$(ulimit -Hn)" || ulimit -n # batches come from the workers as open files in shared memory
df -h /dev/shm
repository=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$repository${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
work=$1 out=$2 minutes=$3
shift 3
shards=$work/shards run=$work/run
mkdir -p "$work" "$out"

deliver() {
    for file in metrics.csv validation.csv; do [ ! -e "$run/$file" ] || cp "$run/$file" "$out/"; done
    [ -e "$run/last.pt" ] || return 0
    python3 -m training.slim "$run/last.pt" "$work/average.pt"
    rm -f "$out"/average.pt.*
    split -d -b "${PART_MEGABYTES:-15}M" "$work/average.pt" "$out/average.pt."
}

[ -e "$shards/ls_dev.idx" ] || python3 -m training.pack unpack "$@" "$shards"
options=(--device "${DEVICE:-cuda}" --workers "${WORKERS:-$(($(nproc) > 2 ? $(nproc) - 1 : 0))}")
options+=(--seconds-per-step "${SECONDS_PER_STEP:-256}" --rate-scale "${RATE_SCALE:-1}")
if [ -e "$shards/start.pt" ]; then
    options+=(--from "$shards/start.pt" --no-teacher)
else
    python3 -m training.teach "$shards" "$shards" --device "${DEVICE:-cuda}"
    options+=(--whisper "$shards")
fi
left=$(python3 -c "print($minutes - ($SECONDS - $started + ${RESERVE_SECONDS:-30}) / 60)")
python3 -m training.train "$shards" "$run" "${options[@]}" --minutes "$left" --save-minutes 2 --validate-minutes 2 ${TRAIN_OPTIONS:-} &
training=$!
trap 'kill -TERM $training 2>/dev/null || true' TERM INT
delivered=$SECONDS
while kill -0 $training 2>/dev/null; do
    sleep 1
    if ((SECONDS - delivered >= ${DELIVER_SECONDS:-100})); then
        deliver || echo "not delivered; the next time may do" >&2
        delivered=$SECONDS
    fi
done
status=0
wait $training || status=$?
deliver
python3 -m training.metrics "$run" && cp "$run/learning.png" "$out/" || echo "no plot: matplotlib is missing" >&2
[ ! -e "$work/average.pt" ] || python3 -m training.export "$work/average.pt" "$work/model"
echo "$((SECONDS - started)) s of $minutes minutes"
exit $status
