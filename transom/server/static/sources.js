// Where audio comes from: the microphone, or a file. A source has a `rate` in Hz and `start({push, isFull, ended})`:
// it calls push(Int16Array, peak) for every chunk, waits while isFull(), and calls ended() once, at the end or after
// stop(). Errors are of class SourceError, with a text for people.

const FILE_RATE = 16_000;
const FILE_CHUNK_S = 0.1;
const FILE_TICK_MS = 50;
const MAX_RATE = 48_000;

export class SourceError extends Error {}

export class Microphone {
  /** Ask for the microphone. Rejects with SourceError. */
  static async open(deviceId) {
    if (!window.isSecureContext || !navigator.mediaDevices) {
      throw new SourceError(
        "The browser gives the microphone only to pages from https:// or from localhost. Open this page with " +
          "https, or forward the port (ssh -L 8000:localhost:8000). A file can be transcribed here.",
      );
    }
    const constraints = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: true };
    if (deviceId) constraints.deviceId = { exact: deviceId };
    try {
      return await Microphone.#capture(await navigator.mediaDevices.getUserMedia({ audio: constraints }));
    } catch (error) {
      throw new SourceError(describeMicrophoneError(error));
    }
  }

  static async #capture(stream) {
    const context = new AudioContext();
    try {
      await context.audioWorklet.addModule(new URL("capture-worklet.js", import.meta.url));
      await context.resume();
      return new Microphone(stream, context);
    } catch (error) {
      stream.getTracks().forEach((track) => track.stop());
      await context.close();
      throw error;
    }
  }

  constructor(stream, context) {
    this.stream = stream;
    this.context = context;
    this.node = new AudioWorkletNode(context, "capture");
    this.rate = context.sampleRate / Math.ceil(context.sampleRate / MAX_RATE);
  }

  start({ push, ended }) {
    this.node.port.onmessage = ({ data }) => {
      if (data.pcm.length) push(data.pcm, data.peak);
      if (data.isLast) ended();
    };
    for (const track of this.stream.getTracks()) track.onended = () => this.stop(); // unplugged, or taken away
    this.context.createMediaStreamSource(this.stream).connect(this.node);
    this.node.connect(this.context.destination); // silent, but an unconnected node is not run
  }

  stop() {
    this.node.port.postMessage("stop");
    this.stream.getTracks().forEach((track) => track.stop());
    setTimeout(() => this.context.close(), 500);
  }
}

function describeMicrophoneError(error) {
  switch (error.name) {
    case "NotAllowedError":
      return "The microphone is not allowed for this page. Allow it beside the address of the page, then start again.";
    case "NotFoundError":
      return "No microphone was found. Connect one, or transcribe a file.";
    case "OverconstrainedError":
      return "The chosen microphone is gone. Choose another one in the settings.";
    case "NotReadableError":
      return "Another program holds the microphone, or the system does not let the browser use it.";
    default:
      return `The microphone cannot be used: ${error.message}`;
  }
}

export class RecordedFile {
  /** Decode a file. Rejects with SourceError. */
  static async open(file, isFast) {
    const context = new OfflineAudioContext(1, 1, FILE_RATE); // decoding resamples to the rate of its context
    try {
      return new RecordedFile(await context.decodeAudioData(await file.arrayBuffer()), isFast);
    } catch {
      throw new SourceError(`This browser cannot read ${file.name} as audio. Try wav, mp3, flac, ogg or m4a.`);
    }
  }

  constructor(audio, isFast) {
    this.rate = FILE_RATE;
    this.audio = audio;
    this.isFast = isFast;
    this.isStopped = false;
  }

  async start({ push, isFull, ended }) {
    const channels = Array.from({ length: this.audio.numberOfChannels }, (_, i) => this.audio.getChannelData(i));
    const size = FILE_RATE * FILE_CHUNK_S;
    const dueSamples = this.isFast ? () => Infinity : pacer();
    let position = 0;
    while (position < this.audio.length && !this.isStopped) {
      if (isFull() || position >= dueSamples()) {
        await new Promise((resolve) => setTimeout(resolve, FILE_TICK_MS));
        continue;
      }
      const { pcm, peak } = toPcm(channels, position, Math.min(position + size, this.audio.length));
      position += pcm.length;
      push(pcm, peak);
    }
    ended();
  }

  stop() {
    this.isStopped = true;
  }
}

function pacer() {
  const begin = performance.now();
  return () => ((performance.now() - begin) / 1000) * FILE_RATE;
}

function toPcm(channels, start, end) {
  const pcm = new Int16Array(end - start);
  let peak = 0;
  for (let index = start; index < end; index++) {
    const sample = channels.reduce((sum, channel) => sum + channel[index], 0) / channels.length;
    peak = Math.max(peak, Math.abs(sample));
    pcm[index - start] = Math.max(-32768, Math.min(32767, Math.round(sample * 32768)));
  }
  return { pcm, peak };
}
