// The last minute of audio, and how much of it was sent. Chunks are Int16Array; all times are seconds of the page's
// clock, which goes on from source to source.

export class Tape {
  constructor(beginS, rate, keptS) {
    Object.assign(this, { beginS, rate, keptS });
    this.chunks = []; // {pcm, start}: start in samples since beginS
    this.numHeard = 0;
    this.numSent = 0;
  }

  get endS() {
    return this.beginS + this.numHeard / this.rate;
  }

  get sentS() {
    return this.beginS + this.numSent / this.rate;
  }

  get unsentS() {
    return this.endS - this.sentS;
  }

  /** What is older than the tape is long is forgotten, sent or not. */
  add(pcm) {
    this.chunks.push({ pcm, start: this.numHeard });
    this.numHeard += pcm.length;
    while (this.numHeard - this.chunks[0].start > this.keptS * this.rate) {
      const { pcm: old, start } = this.chunks.shift();
      this.numSent = Math.max(this.numSent, start + old.length);
    }
  }

  /** The chunks that were not sent yet; from now on they were. */
  takeUnsent() {
    const unsent = [];
    for (let index = this.chunks.length - 1; index >= 0 && this.chunks[index].start >= this.numSent; index--) {
      unsent.unshift(this.chunks[index].pcm);
    }
    this.numSent = this.numHeard;
    return unsent;
  }

  /** Send again from the chunk that begins nearest to this time. */
  rewind(timeS) {
    const wanted = (timeS - this.beginS) * this.rate;
    const chunk = this.chunks.find(({ pcm, start }) => start + pcm.length / 2 > wanted);
    this.numSent = Math.min(this.numSent, chunk?.start ?? this.numHeard);
  }
}
