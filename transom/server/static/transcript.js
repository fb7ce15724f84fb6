// What was said: items in order, each with its text and, if the server tells them, its words and their times.
// Knows the events of the protocol, not the socket and not the page; tells `onChange(item, change)` of every change,
// where change is "added", "grown", "final" or "removed".

const TRANSCRIPTION = "conversation.item.input_audio_transcription.";

export class Transcript {
  constructor(onChange) {
    this.items = [];
    this.onChange = onChange;
    this.open = new Map(); // item id -> item that the current connection has not finished
  }

  /** Take an event of a session whose audio began at `offsetS`, when `heardS` had been heard. */
  take(event, offsetS, heardS) {
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        this.#item(event.item_id, offsetS + event.audio_start_ms / 1000, heardS);
        break;
      case "input_audio_buffer.speech_stopped":
        this.#item(event.item_id, heardS, heardS).endS = offsetS + event.audio_end_ms / 1000;
        break;
      case `${TRANSCRIPTION}delta`:
        this.#grow(event, offsetS, heardS);
        break;
      case `${TRANSCRIPTION}completed`:
        this.#complete(event, offsetS, heardS);
        break;
      case `${TRANSCRIPTION}failed`:
        this.#close(event.item_id);
        break;
    }
  }

  /** The connection is gone: what came of the open items is all that will come. */
  closeAll() {
    for (const id of [...this.open.keys()]) this.#close(id);
  }

  /** Forget everything. */
  clear() {
    this.items.length = 0;
    this.open.clear();
  }

  /** The end of the newest word with a known time, or null. */
  get newestWordEndS() {
    for (let index = this.items.length - 1; index >= 0; index--) {
      const word = this.items[index].words.at(-1);
      if (word !== undefined) return word.end;
    }
    return null;
  }

  #item(id, startS, endS) {
    let item = this.open.get(id);
    if (item === undefined) {
      item = { id, text: "", words: [], startS, endS, isFinal: false };
      this.items.push(item);
      this.open.set(id, item);
      this.onChange(item, "added");
    }
    return item;
  }

  #grow(event, offsetS, heardS) {
    const words = shifted(event.words, offsetS);
    const item = this.#item(event.item_id, words[0]?.start ?? heardS, heardS);
    item.text += event.delta ?? "";
    item.words.push(...words);
    item.endS = Math.max(item.endS, heardS);
    this.onChange(item, "grown");
  }

  #complete(event, offsetS, heardS) {
    const words = shifted(event.words, offsetS);
    const item = this.#item(event.item_id, words[0]?.start ?? heardS, heardS);
    item.text = event.transcript;
    if (words.length) item.words = words;
    this.#close(event.item_id);
  }

  #close(id) {
    const item = this.open.get(id);
    if (item === undefined) return;
    this.open.delete(id);
    item.isFinal = true;
    if (item.words.length) {
      item.startS = item.words[0].start;
      item.endS = item.words.at(-1).end;
    }
    if (item.text.trim() === "") {
      this.items.splice(this.items.indexOf(item), 1);
      this.onChange(item, "removed");
    } else {
      this.onChange(item, "final");
    }
  }
}

function shifted(words, offsetS) {
  return (words ?? []).map(({ word, start, end }) => ({
    word: word.trim(),
    start: start + offsetS,
    end: end + offsetS,
  }));
}
