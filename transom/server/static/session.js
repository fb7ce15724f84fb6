// One connection: OpenAI's GA transcription dialect on /v1/realtime. Knows no page and no audio device.

const REALTIME_URL = new URL("../v1/realtime", import.meta.url);
const MODELS_URL = new URL("../v1/models", import.meta.url);
const KEY_PREFIX = "openai-insecure-api-key.";
const LAST_COMMIT = "last-commit";
const CLOSE_POLICY = 1008;

/** Ask the server about itself: {model} or {problem, text}; problem is "key", "unreachable" or "server". */
export async function askServer(key) {
  let response;
  try {
    response = await fetch(MODELS_URL, { headers: key ? { Authorization: `Bearer ${key}` } : {} });
  } catch {
    return { problem: "unreachable", text: "The server cannot be reached. Is it running, and are you online?" };
  }
  if (response.ok) return { model: (await response.json()).data[0]?.id ?? "unknown model" };
  if (response.status === 401 || response.status === 403) {
    return { problem: "key", text: key ? "The server does not accept this API key." : "This server needs an API key." };
  }
  return { problem: "server", text: `The server answered with HTTP status ${response.status}.` };
}

export class Session {
  /**
   * Connect, or come back to the session of an earlier connection, `lost`. Calls `on.ready(settings)` with the settings
   * in effect, `on.event(event)` for all that is said of the transcription, `on.error(text)`, and once
   * `on.closed({wasOpen, isRefused, text})`.
   */
  constructor({ key, rate, delay, detectsTurns, lost, on }) {
    this.on = on;
    this.token = null; // with which one can come back
    this.audioMs = 0; // heard by the server before this connection
    this.numReceived = lost?.numReceived ?? 0; // events after the first one of each connection
    this.unanswered = lost?.unanswered ?? new Set();
    this.isFenced = false;
    this.wasOpen = false;
    this.lastError = null;
    this.finished = null;
    const url = new URL(REALTIME_URL);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    url.search = new URLSearchParams({
      intent: "transcription",
      resume: lost?.token ?? "new",
      received: this.numReceived,
    });
    this.socket = new WebSocket(url, ["realtime", ...(key ? [KEY_PREFIX + key] : [])]);
    this.socket.onopen = () => {
      this.wasOpen = true;
      this.configure({ rate, delay, detectsTurns });
    };
    this.socket.onmessage = ({ data }) => this.#take(JSON.parse(data));
    this.socket.onclose = (event) => this.#closed(event);
  }

  get isOpen() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  /** Bytes of base64 that the network has not taken yet. */
  get waitingBytes() {
    return this.socket.bufferedAmount;
  }

  /** Change settings; the delay holds from the next turn on. */
  configure({ rate, delay, detectsTurns }) {
    const input = {
      format: { type: "audio/pcm", rate },
      transcription: { delay: delay || null },
      turn_detection: detectsTurns ? { type: "server_vad" } : null,
    };
    this.#send({ type: "session.update", session: { type: "transcription", audio: { input } } });
  }

  /** Send an Int16Array. */
  append(pcm) {
    const bytes = new Uint8Array(pcm.buffer, pcm.byteOffset, pcm.byteLength);
    this.#send({ type: "input_audio_buffer.append", audio: btoa(String.fromCharCode(...bytes)) });
  }

  /** End the last turn; resolves when every turn is answered, or the connection is gone. */
  finish() {
    return new Promise((resolve) => {
      this.finished = resolve;
      if (!this.isOpen) return resolve();
      this.#send({ type: "input_audio_buffer.commit", event_id: LAST_COMMIT });
      // Its answer, "cleared", says that the commit was dealt with, whether or not there was audio to commit.
      this.#send({ type: "input_audio_buffer.clear" });
    });
  }

  /** Leave. */
  close() {
    this.socket.close(1000);
  }

  #send(event) {
    if (this.isOpen) this.socket.send(JSON.stringify(event));
  }

  #take(event) {
    if (event.type === "session.created") {
      this.token = event.resume?.token ?? null;
      this.audioMs = event.resume?.audio_ms ?? 0;
      return;
    }
    this.numReceived++;
    switch (event.type) {
      case "session.updated":
        this.on.ready(event.session.audio.input);
        break;
      case "error":
        this.#fail(event.error);
        break;
      case "input_audio_buffer.committed":
        this.unanswered.add(event.item_id);
        break;
      case "input_audio_buffer.cleared":
        this.isFenced = true;
        break;
      case "conversation.item.input_audio_transcription.failed":
        this.on.error(`A part could not be transcribed: ${event.error.message}`);
      // falls through
      case "conversation.item.input_audio_transcription.completed":
        this.unanswered.delete(event.item_id);
        break;
    }
    this.on.event(event);
    if (this.finished && this.isFenced && this.unanswered.size === 0) this.finished();
  }

  #fail(error) {
    const isEmptyEnd = error.event_id === LAST_COMMIT && error.code === "input_audio_buffer_commit_empty";
    if (isEmptyEnd) return;
    this.lastError = error.message;
    this.on.error(error.message);
  }

  #closed({ code, reason }) {
    const said = this.lastError ?? (reason || `close code ${code}`);
    this.on.closed({ wasOpen: this.wasOpen, isRefused: code === CLOSE_POLICY, text: said });
    this.finished?.();
  }
}
