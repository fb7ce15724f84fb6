// Transcripts as plain text, SubRip and WebVTT. Pure functions: no page, no network.
// An item is {text, words, startS, endS}; a word is {word, start, end}; all times are seconds of the page's recording.

const MAX_CUE_CHARS = 84;
const MAX_LINE_CHARS = 42;
const MAX_CUE_S = 6;
const MIN_CUE_S = 0.8;
const PAUSE_S = 0.8;
const SENTENCE_END = /[.!?…。！？]["')\]]*$/;

/** One line an item. */
export function toText(items) {
  return items.map((item) => item.text.trim()).filter(Boolean).join("\n") + "\n";
}

/** SubRip: numbered cues, commas in the times. */
export function toSrt(items) {
  return makeCues(items)
    .map((cue, index) => `${index + 1}\n${timespan(cue, ",")}\n${inLines(cue.text)}\n`)
    .join("\n");
}

/** WebVTT: dots in the times, and text in which no character is markup. */
export function toVtt(items) {
  const cues = makeCues(items).map((cue) => `${timespan(cue, ".")}\n${escapeVtt(inLines(cue.text))}\n`);
  return ["WEBVTT\n", ...cues].join("\n");
}

/** Cues {start, end, text} in order; none begins before the last one ends. */
export function makeCues(items) {
  const cues = items.flatMap((item) => (item.words.length ? cuesOfWords(item.words) : cueOfText(item)));
  cues.forEach((cue, index) => {
    const limit = index + 1 < cues.length ? Math.max(cues[index + 1].start, cue.start) : Infinity;
    cue.end = Math.min(Math.max(cue.end, cue.start + MIN_CUE_S), limit);
  });
  return cues;
}

function cueOfText(item) {
  const text = item.text.trim();
  return text ? [{ start: item.startS, end: item.endS, text }] : [];
}

function cuesOfWords(words) {
  const cues = [];
  for (const { word, start, end } of words) {
    const cue = cues.at(-1);
    if (cue === undefined || mustBreak(cue, word, start, end)) {
      cues.push({ start, end, text: word });
    } else {
      cue.text += ` ${word}`;
      cue.end = end;
    }
  }
  return cues;
}

function mustBreak(cue, word, start, end) {
  return (
    cue.text.length + 1 + word.length > MAX_CUE_CHARS ||
    end - cue.start > MAX_CUE_S ||
    start - cue.end > PAUSE_S ||
    SENTENCE_END.test(cue.text)
  );
}

/** Two lines of about the same length if one would be too long. */
function inLines(text) {
  if (text.length <= MAX_LINE_CHARS) return text;
  const middle = text.length / 2;
  const spaces = [...text.matchAll(/ /g)].map((match) => match.index);
  if (spaces.length === 0) return text;
  const nearest = spaces.reduce((best, at) => (Math.abs(at - middle) < Math.abs(best - middle) ? at : best));
  return `${text.slice(0, nearest)}\n${text.slice(nearest + 1)}`;
}

function escapeVtt(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function timespan(cue, point) {
  return `${timestamp(cue.start, point)} --> ${timestamp(cue.end, point)}`;
}

function timestamp(seconds, point) {
  const ms = Math.max(0, Math.round(seconds * 1000));
  const parts = [Math.floor(ms / 3_600_000), Math.floor(ms / 60_000) % 60, Math.floor(ms / 1000) % 60];
  return parts.map((part) => String(part).padStart(2, "0")).join(":") + point + String(ms % 1000).padStart(3, "0");
}

/** 65.2 -> "1:05", 3605 -> "1:00:05". */
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const tail = `${String(rest).padStart(2, "0")}`;
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${tail}` : `${minutes}:${tail}`;
}
