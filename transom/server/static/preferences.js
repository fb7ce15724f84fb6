// What a person chose, kept by the browser: the API key until the tab is closed, everything else for good.

const NAME = "transom";
const KEY_NAME = "transom-api-key";
const DEFAULTS = { theme: "auto", size: "m", delay: "", detectsTurns: true, isFast: false, showsTimes: false, deviceId: "" };

export function loadPreferences() {
  try {
    return { ...DEFAULTS, ...JSON.parse(localStorage.getItem(NAME) ?? "{}") };
  } catch {
    return { ...DEFAULTS }; // storage is switched off, or holds something else
  }
}

export function savePreferences(preferences) {
  keep(() => localStorage.setItem(NAME, JSON.stringify(preferences)));
}

export function loadKey() {
  return keep(() => sessionStorage.getItem(KEY_NAME)) ?? "";
}

export function saveKey(key) {
  keep(() => (key ? sessionStorage.setItem(KEY_NAME, key) : sessionStorage.removeItem(KEY_NAME)));
}

/** With storage switched off the page works, and forgets. */
function keep(act) {
  try {
    return act();
  } catch (error) {
    console.info(`not kept: ${error.message}`);
    return null;
  }
}
