// The two meters: how loud it is, and how far the words are behind.

const FLOOR_DB = -60;
const FALL_PER_FRAME = 0.04;
const MAX_LAG_S = 5;
const LATE_S = 2;
const VERY_LATE_S = 4;

export class LevelMeter {
  constructor(meter) {
    this.meter = meter;
    this.bar = meter.firstElementChild;
    this.value = 0;
  }

  /** A peak in 0..1, many times a second; falls slowly, so that eyes can follow. */
  show(peak) {
    if (peak === 0 && this.value === 0) return;
    const loudness = peak > 0 ? Math.max(0, 1 - (20 * Math.log10(peak)) / FLOOR_DB) : 0;
    this.value = Math.max(Math.min(1, loudness), this.value - FALL_PER_FRAME, 0);
    setBar(this.bar, this.value);
    this.meter.dataset.quality = peak >= 1 ? "bad" : "good"; // clipped
    this.meter.ariaValueNow = String(Math.round(this.value * 100));
  }
}

export class LagMeter {
  constructor(meter, output) {
    Object.assign(this, { meter, output, bar: meter.firstElementChild });
  }

  /** What was heard, and the end of the newest word whose time is known, in seconds. */
  show(heardS, wordEndS) {
    if (wordEndS !== null) this.#set(Math.max(0, heardS - wordEndS), "");
  }

  /** Audio that the server does not take. */
  warn(waitingS) {
    this.#set(waitingS, "+");
  }

  reset() {
    setBar(this.bar, 0);
    this.output.textContent = "–";
    this.meter.ariaValueText = "not known yet";
  }

  #set(seconds, mark) {
    setBar(this.bar, Math.min(1, seconds / MAX_LAG_S));
    this.meter.dataset.quality = seconds > VERY_LATE_S ? "bad" : seconds > LATE_S ? "fair" : "good";
    this.meter.ariaValueNow = Math.min(seconds, MAX_LAG_S).toFixed(1);
    this.meter.ariaValueText = `${seconds.toFixed(1)} seconds`;
    this.output.textContent = `${seconds.toFixed(1)}${mark} s`;
  }
}

function setBar(bar, share) {
  bar.style.setProperty("--share", share.toFixed(3));
}
