// Shows the transcript: a row an item, with its time, its words as they come, and final text announced to screen
// readers. Only this file makes elements.

import { clock } from "./captions.js";

const NEAR_END_PX = 120;

export class TranscriptView {
  constructor({ scroller, list, announcer }) {
    Object.assign(this, { scroller, list, announcer });
    this.rows = new Map(); // item -> {row, time, settled, tail, numWords, position}
  }

  /** A change of the transcript, as `Transcript` tells it. */
  update(item, change) {
    const { scroller } = this;
    const wasAtEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_END_PX;
    if (change === "added") this.#add(item);
    else if (change === "removed") this.#remove(item);
    else this.#fill(item, this.rows.get(item));
    if (change === "final") this.#finalize(item);
    if (wasAtEnd) scroller.scrollTop = scroller.scrollHeight;
  }

  clear() {
    this.rows.clear();
    this.list.replaceChildren();
    this.announcer.replaceChildren();
  }

  #add(item) {
    const [row, time, text] = [element("li", "item"), element("time", "when"), element("p", "said")];
    const [settled, tail] = [element("span", "settled"), element("span", "tail")];
    text.append(settled, tail);
    row.append(time, text);
    this.rows.set(item, { row, time, settled, tail, numWords: 0, position: 0 });
    this.list.append(row);
    setTime(time, item.startS);
  }

  #remove(item) {
    this.rows.get(item).row.remove();
    this.rows.delete(item);
  }

  /** Words whose times are known get an element each; the text after them stays as it is. */
  #fill(item, shown) {
    for (const word of item.words.slice(shown.numWords)) {
      const at = item.text.indexOf(word.word, shown.position);
      if (word.word === "" || at < 0) break;
      shown.settled.append(item.text.slice(shown.position, at), wordElement(word));
      shown.position = at + word.word.length;
      shown.numWords++;
    }
    shown.tail.textContent = item.text.slice(shown.position);
    if (shown.position === 0) shown.tail.textContent = shown.tail.textContent.trimStart();
  }

  #finalize(item) {
    const { row, time } = this.rows.get(item);
    row.classList.add("final");
    setTime(time, item.startS);
    this.announcer.replaceChildren(element("p", "", item.text.trim()));
  }
}

/** Show seconds in a time element. */
export function setTime(time, seconds) {
  const exact = `PT${seconds.toFixed(2)}S`;
  if (time.dateTime === exact) return;
  time.dateTime = exact;
  time.textContent = clock(seconds);
}

function wordElement({ word, start, end }) {
  const span = element("span", "word", word);
  span.dataset.start = start.toFixed(1);
  span.title = `${start.toFixed(2)} to ${end.toFixed(2)} s`;
  return span;
}

function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}
