// The page: connects buttons, settings and meters to the captioner. What is shown in which state is decided here.

import { Captioner } from "./captioner.js";
import { toSrt, toText, toVtt } from "./captions.js";
import { LagMeter, LevelMeter } from "./meters.js";
import { loadKey, loadPreferences, saveKey, savePreferences } from "./preferences.js";
import { askServer } from "./session.js";
import { Microphone, RecordedFile, SourceError } from "./sources.js";
import { Transcript } from "./transcript.js";
import { setTime, TranscriptView } from "./view.js";

const STATUS = { idle: "Ready", starting: "Connecting", live: "Listening", finishing: "Last words", lost: "No connection" };
const BUTTON = { idle: "Start", starting: "Stop", live: "Stop", finishing: "Stop now", lost: "Stop" };
const FORMATS = {
  txt: { make: toText, type: "text/plain" },
  srt: { make: toSrt, type: "application/x-subrip" },
  vtt: { make: toVtt, type: "text/vtt" },
};
const MANY_WAITING_S = 4;

const $ = (id) => document.getElementById(id);
const preferences = loadPreferences();
const view = new TranscriptView({ scroller: $("transcript"), list: $("items"), announcer: $("announcer") });
const transcript = new Transcript((item, change) => {
  view.update(item, change);
  if (change === "grown" || change === "final") lag.show(captioner.heardS, transcript.newestWordEndS);
  refreshTexts();
});
const captioner = new Captioner(transcript, showState);
const level = new LevelMeter($("level"));
const lag = new LagMeter($("lag"), $("lag-text"));
let isOpening = false;
let wakeLock = null;

function showState(state, notice) {
  $("status").textContent = STATUS[state];
  $("status").dataset.state = document.body.dataset.state = state;
  $("start-text").textContent = BUTTON[state];
  $("choose-file").disabled = state !== "idle";
  $("retry").hidden = state !== "lost";
  if (state === "idle") lag.reset();
  if (notice !== null || state === "live") showNotice(notice);
  if (state === "idle" && notice !== null) askAboutServer();
  holdScreen(state === "live");
}

function showNotice(text) {
  $("notice").hidden = !text;
  $("notice-text").textContent = text ?? "";
}

function refreshTexts() {
  const isEmpty = transcript.items.length === 0;
  $("welcome").hidden = !isEmpty;
  $("copy").disabled = $("save").disabled = isEmpty;
}

const options = () => ({ key: loadKey(), delay: preferences.delay, detectsTurns: preferences.detectsTurns });

/** Open a microphone or a file and run it; only one at a time. */
async function run(open) {
  if (isOpening || captioner.state !== "idle") return;
  isOpening = true;
  showNotice(null);
  try {
    captioner.start(await open(), options);
  } catch (error) {
    if (!(error instanceof SourceError)) throw error;
    showNotice(error.message);
  } finally {
    isOpening = false;
  }
}

function toggle() {
  if (captioner.state !== "idle") return captioner.stop();
  run(() => Microphone.open(preferences.deviceId));
}

/** A phone must not go dark while people read. */
async function holdScreen(isHeld) {
  if (isHeld && wakeLock === null && "wakeLock" in navigator) {
    wakeLock = await navigator.wakeLock.request("screen").catch(() => null); // refused on low battery
  } else if (!isHeld && wakeLock !== null) {
    wakeLock.release();
    wakeLock = null;
  }
}

function drawMeters() {
  level.show(captioner.state === "idle" ? 0 : captioner.takePeak());
  setTime($("elapsed"), captioner.heardS);
  if (captioner.state === "live" && captioner.waitingS > MANY_WAITING_S) lag.warn(captioner.waitingS);
  requestAnimationFrame(drawMeters);
}

/** Which model, and is a key needed? Returns what is wrong, or null. */
async function askAboutServer() {
  const key = loadKey();
  const { model, problem, text } = await askServer(key);
  if (model) $("model").textContent = model;
  $("key-form").hidden = problem !== "key";
  const isOnlyMissing = problem === "key" && key === "";
  return isOnlyMissing ? null : (text ?? null);
}

function save(format) {
  const { make, type } = FORMATS[format];
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([make(transcript.items)], { type: `${type};charset=utf-8` }));
  link.download = `captions-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  $("save-menu").hidePopover();
}

async function copy() {
  try {
    await navigator.clipboard.writeText(toText(transcript.items));
    $("copy").textContent = "Copied";
  } catch {
    getSelection().selectAllChildren($("items"));
    $("copy").textContent = "Selected";
    showNotice("The browser does not let this page copy. The text is selected: press Ctrl+C.");
  }
  setTimeout(() => ($("copy").textContent = "Copy"), 2000);
}

function clearAll() {
  $("save-menu").hidePopover();
  if (captioner.state === "idle") {
    transcript.clear();
    view.clear();
    captioner.reset();
    refreshTexts();
  } else {
    showNotice("Stop first, then clear the text.");
  }
}

function applyPreferences() {
  Object.assign(document.documentElement.dataset, {
    theme: preferences.theme,
    size: preferences.size,
    times: preferences.showsTimes ? "on" : "off",
  });
}

async function listMicrophones() {
  if (!navigator.mediaDevices) return;
  const devices = (await navigator.mediaDevices.enumerateDevices()).filter((device) => device.kind === "audioinput");
  const named = devices.filter((device) => device.label && device.deviceId && device.deviceId !== "default");
  $("device").replaceChildren(
    new Option("The system's choice", ""),
    ...named.map((device) => new Option(device.label, device.deviceId)),
  );
  $("device").value = preferences.deviceId;
}

function connectSettings() {
  for (const field of $("settings").querySelectorAll("[name]")) {
    const property = field.type === "checkbox" ? "checked" : "value";
    field[property] = preferences[field.name];
    field.addEventListener("change", () => {
      preferences[field.name] = field[property];
      savePreferences(preferences);
      applyPreferences();
      if (field.name === "delay" || field.name === "detectsTurns") captioner.reconfigure();
    });
  }
  $("open-settings").onclick = async () => {
    $("settings").showModal();
    await listMicrophones();
  };
  $("close-settings").onclick = () => $("settings").close();
}

function connectControls() {
  $("start").onclick = toggle;
  $("retry").onclick = () => captioner.retry();
  $("dismiss").onclick = () => showNotice(null);
  $("copy").onclick = copy;
  $("clear").onclick = clearAll;
  for (const button of document.querySelectorAll("[data-format]")) button.onclick = () => save(button.dataset.format);
  $("choose-file").onclick = () => $("file").click();
  $("file").onchange = () => {
    const [file] = $("file").files;
    $("file").value = "";
    if (file) run(() => RecordedFile.open(file, preferences.isFast));
  };
  $("key-form").onsubmit = async (event) => {
    event.preventDefault();
    saveKey($("key").value.trim());
    showNotice(await askAboutServer());
  };
  document.addEventListener("keydown", (event) => {
    const isFree = event.target === document.body || event.target === $("transcript");
    if (!isFree || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key !== " " && event.key !== "Enter") return;
    event.preventDefault();
    toggle();
  });
  addEventListener("beforeunload", (event) => captioner.state === "live" && event.preventDefault());
}

applyPreferences();
connectSettings();
connectControls();
$("host").textContent = location.host;
showState("idle", null);
refreshTexts();
drawMeters();
$("start").focus();
askAboutServer().then(showNotice);
