// Brings a source and a session together: queues audio while there is no connection, connects again, keeps the clock.
// No page in here: everything that people see goes through `tell(state, notice)`.
//
// States: idle -> starting -> live -> finishing -> idle, and live -> lost -> live. `notice` is a text or null.

import { askServer, Session } from "./session.js";

const RETRY_MS = [500, 1000, 2000, 4000, 8000];
const MAX_QUEUE_S = 60;
const MAX_WAITING_S = 2;
const BASE64_BYTES_PER_SAMPLE = 8 / 3;

export class Captioner {
  constructor(transcript, tell) {
    this.transcript = transcript;
    this.tell = tell;
    this.state = "idle";
    this.heardS = 0; // audio heard since the page was opened: the clock of all times
    this.peak = 0;
    this.queue = [];
    this.source = null;
    this.session = null;
    this.retryTimer = null;
  }

  /** Run a source to its end. `options()` gives {key, delay, detectsTurns} whenever a connection is made. */
  start(source, options) {
    Object.assign(this, { source, options, queue: [], numFailures: 0, sourceEnded: false });
    this.#enter("starting");
    this.#connect();
    const ifCurrent = (act) => (...values) => this.source === source && act(...values); // the last chunk comes late
    source.start({
      push: ifCurrent((pcm, peak) => this.#push(pcm, peak)),
      isFull: () => this.waitingS > MAX_WAITING_S,
      ended: ifCurrent(() => this.#sourceEnded()),
    });
  }

  /** No more audio; the last words still come. A second call does not wait for them. */
  stop() {
    if (this.state === "idle") return;
    if (this.state === "lost" || this.sourceEnded) return this.#end(null);
    this.source.stop();
  }

  /** Connect again now. */
  retry() {
    if (this.state !== "lost") return;
    this.numFailures = 0;
    this.#connect();
  }

  /** Tell a running session of changed settings. */
  reconfigure() {
    if (this.state === "live") this.session.configure({ rate: this.source.rate, ...this.options() });
  }

  /** Seconds of audio that the server has not got. */
  get waitingS() {
    if (this.source === null) return 0;
    const sent = this.session === null ? 0 : this.session.waitingBytes / BASE64_BYTES_PER_SAMPLE;
    return this.queuedS + sent / this.source.rate;
  }

  /** The loudest sample, in 0..1, since the last call. */
  takePeak() {
    const { peak } = this;
    this.peak = 0;
    return peak;
  }

  get queuedS() {
    return this.queue.reduce((sum, pcm) => sum + pcm.length, 0) / (this.source?.rate ?? 1);
  }

  #enter(state, notice = null) {
    this.state = state;
    this.tell(state, notice);
  }

  #push(pcm, peak) {
    this.heardS += pcm.length / this.source.rate;
    this.peak = Math.max(peak, this.peak);
    this.queue.push(pcm);
    if (this.state === "live" || this.state === "finishing") this.#flush();
    while (this.queuedS > MAX_QUEUE_S) this.queue.shift();
  }

  #flush() {
    for (const pcm of this.queue.splice(0)) this.session.append(pcm);
  }

  #connect() {
    clearTimeout(this.retryTimer);
    const session = new Session({
      ...this.options(),
      rate: this.source.rate,
      on: {
        ready: (settings) => this.#ready(session, settings),
        event: (event) => this.transcript.take(event, session.offsetS, this.heardS),
        error: (text) => this.tell(this.state, text),
        closed: (how) => this.#closed(session, how),
      },
    });
    session.offsetS = this.heardS;
    this.session = session;
  }

  #ready(session, settings) {
    if (session.isReady) return;
    session.isReady = true;
    session.offsetS = this.heardS - this.queuedS;
    this.numFailures = 0;
    const isRefused = this.options().detectsTurns && settings.turn_detection === null;
    this.#enter("live", isRefused ? "This server does not find pauses: text becomes final when you stop." : null);
    this.#flush();
    if (this.sourceEnded) this.#finish();
  }

  #sourceEnded() {
    this.sourceEnded = true;
    if (this.state === "live") this.#finish();
  }

  async #finish() {
    const { session } = this;
    this.#enter("finishing");
    await session.finish();
    if (this.state === "finishing" && this.session === session) this.#end(null);
  }

  #end(notice) {
    clearTimeout(this.retryTimer);
    const { session, source } = this;
    this.session = this.source = null;
    if (!this.sourceEnded) source.stop();
    session?.close();
    this.queue = [];
    this.transcript.closeAll();
    this.#enter("idle", notice);
  }

  async #closed(session, how) {
    if (session !== this.session) return; // it was ended here
    this.transcript.closeAll();
    if (this.state === "finishing") return this.#end(`The connection ended before the last words came: ${how.text}.`);
    if (how.isRefused) return this.#end(`The server ended the session: ${how.text}`);
    if (how.wasOpen) return this.#retryLater(`The connection was lost (${how.text}).`);
    const { problem, text } = await askServer(this.options().key);
    if (session !== this.session) return;
    if (problem === "key") return this.#end(text);
    const full = "The server is there but takes no session now: probably all its places are in use.";
    if (this.state === "starting") return this.#end(text ?? full);
    this.#retryLater(text ?? full);
  }

  #retryLater(notice) {
    const wait = RETRY_MS[this.numFailures++];
    if (wait === undefined) return this.#enter("lost", `${notice} Press Reconnect to try again.`);
    this.#enter("lost", `${notice} Connecting again; what you say is kept for ${MAX_QUEUE_S} s.`);
    this.retryTimer = setTimeout(() => this.#connect(), wait);
  }
}
