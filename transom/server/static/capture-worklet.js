// Runs in the audio thread: mixes the microphone to mono PCM16 in chunks of about 40 ms.
// A device above 48 kHz, the most the server takes, is averaged down by a whole number. The message "stop" sends what
// is left, marked isLast.

const MAX_RATE = 48_000;
const CHUNK_S = 0.04;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.factor = Math.ceil(sampleRate / MAX_RATE);
    this.chunk = new Int16Array(Math.round((sampleRate / this.factor) * CHUNK_S));
    this.numSamples = 0;
    this.sum = 0;
    this.numSummed = 0;
    this.peak = 0;
    this.isStopped = false;
    this.port.onmessage = () => {
      this.isStopped = true;
      this.send(true);
    };
  }

  process([channels]) {
    if (this.isStopped) return false;
    const length = channels.length ? channels[0].length : 0;
    for (let index = 0; index < length; index++) {
      for (const channel of channels) this.sum += channel[index] / channels.length;
      if (++this.numSummed === this.factor) {
        this.take(this.sum / this.factor);
        this.sum = this.numSummed = 0;
      }
    }
    return true;
  }

  take(sample) {
    this.peak = Math.max(this.peak, Math.abs(sample));
    this.chunk[this.numSamples++] = Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
    if (this.numSamples === this.chunk.length) this.send(false);
  }

  send(isLast) {
    const pcm = this.chunk.slice(0, this.numSamples);
    this.port.postMessage({ pcm, peak: this.peak, isLast }, [pcm.buffer]);
    this.numSamples = 0;
    this.peak = 0;
  }
}

registerProcessor("capture", Capture);
