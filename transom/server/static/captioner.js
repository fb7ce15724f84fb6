// Brings a source and a session together: keeps audio while there is no connection, connects again, keeps the clock.
// No page in here: everything that people see goes through `tell(state, notice)`.
//
// States: idle -> starting -> live -> finishing -> idle, and live or finishing -> lost -> live. `notice` is a text for
// people, or null. All times are seconds of audio since the page was opened.

import { askServer, Session } from "./session.js";
import { Tape } from "./tape.js";

const RETRY_MS = [500, 1000, 2000, 4000, 8000];
const KEPT_S = 60;
const MAX_WAITING_S = 2;
const BASE64_BYTES_PER_SAMPLE = 8 / 3;
const FULL = "The server is there but takes no session now: probably all its places are in use.";

export class Captioner {
  constructor(transcript, tell) {
    this.transcript = transcript;
    this.tell = tell;
    this.state = "idle";
    this.peak = 0;
    this.source = null;
    this.session = null;
    this.lost = null; // the connection whose session may go on in the next one
    this.tape = new Tape(0, 1, KEPT_S);
    this.retryTimer = null;
  }

  /** Run a source to its end. `options()` gives {key, delay, detectsTurns} whenever a connection is made. */
  start(source, options) {
    const tape = new Tape(this.heardS, source.rate, KEPT_S);
    Object.assign(this, { source, options, tape, lost: null, numFailures: 0, sourceEnded: false });
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

  /** Forget the time. */
  reset() {
    this.tape = new Tape(0, 1, KEPT_S);
  }

  /** The clock. */
  get heardS() {
    return this.tape.endS;
  }

  /** Seconds of audio that the network has not taken yet. */
  get waitingS() {
    if (this.source === null) return 0;
    return this.tape.unsentS + (this.session?.waitingBytes ?? 0) / BASE64_BYTES_PER_SAMPLE / this.source.rate;
  }

  /** The loudest sample, in 0..1, since the last call. */
  takePeak() {
    const { peak } = this;
    this.peak = 0;
    return peak;
  }

  #enter(state, notice = null) {
    this.state = state;
    this.tell(state, notice);
  }

  #push(pcm, peak) {
    this.peak = Math.max(peak, this.peak);
    this.tape.add(pcm);
    if (this.state === "live" || this.state === "finishing") this.#send();
  }

  #send() {
    for (const pcm of this.tape.takeUnsent()) this.session.append(pcm);
  }

  #connect() {
    clearTimeout(this.retryTimer);
    const { lost } = this;
    const session = new Session({
      ...this.options(),
      rate: this.source.rate,
      lost,
      on: {
        ready: (settings) => this.#ready(session, settings),
        event: (event) => this.transcript.take(event, session.offsetS, this.heardS),
        error: (text) => this.tell(this.state, text),
        closed: (how) => this.#closed(session, how),
      },
    });
    session.offsetS = lost?.offsetS ?? this.heardS; // when its audio began
    this.session = session;
  }

  #ready(session, settings) {
    if (session.isReady) return;
    session.isReady = true;
    this.numFailures = 0;
    const audioS = session.audioMs / 1000;
    if (this.lost) this.tape.rewind(session.offsetS + audioS); // what was on its way when the connection was lost
    session.offsetS = this.tape.sentS - audioS;
    const isRefused = this.options().detectsTurns && settings.turn_detection === null;
    this.#enter("live", isRefused ? "This server does not find pauses: text becomes final when you stop." : null);
    this.#send();
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
    this.transcript.closeAll();
    this.#enter("idle", notice);
  }

  async #closed(session, how) {
    if (session !== this.session) return; // it was ended here
    if (how.isRefused) return this.#end(`The server ended the session: ${how.text}`);
    if (how.wasOpen) {
      if (session.token) this.lost = session;
      return this.#retryLater(`The connection was lost (${how.text}).`);
    }
    const { problem, text } = await askServer(this.options().key);
    if (session !== this.session) return;
    if (problem === "key" || this.state === "starting") return this.#end(text ?? FULL);
    if (!problem) this.lost = null; // it may have forgotten the session: the next try begins a new one
    this.#retryLater(text ?? FULL);
  }

  #retryLater(notice) {
    if (!this.lost) {
      this.transcript.closeAll();
      if (this.sourceEnded && this.tape.unsentS === 0) return this.#end(`${notice} The last words did not come.`);
    }
    const wait = RETRY_MS[this.numFailures++];
    if (wait === undefined) return this.#enter("lost", `${notice} Press Reconnect to try again.`);
    this.#enter("lost", `${notice} Connecting again; what you say is kept for ${KEPT_S} s.`);
    this.retryTimer = setTimeout(() => this.#connect(), wait);
  }
}
