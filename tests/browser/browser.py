"""A headless Chromium whose microphone plays a WAV file, and the questions that the tests ask its page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

HAS_SELENIUM = find_spec("selenium") is not None
if HAS_SELENIUM or TYPE_CHECKING:
    from selenium import webdriver
    from selenium.common.exceptions import TimeoutException
    from selenium.webdriver.remote.webelement import WebElement
    from selenium.webdriver.support.wait import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
TIMEOUT_S = 40.0
DESKTOP = (1280, 800)
PHONE = (390, 844)
HEARD_S = "parseFloat(document.getElementById('elapsed').dateTime.slice(2))"


def why_not() -> str | None:
    """What is missing to run a browser here, or None."""
    if not HAS_SELENIUM:
        return "needs selenium: pip install 'transom[browser]'"
    if CHROMIUM is None or DRIVER is None:
        return "needs Chromium and its driver: apt-get install chromium chromium-driver"
    return None


@dataclass(frozen=True)
class Page:
    """One page in one browser."""

    driver: Any
    downloads: Path

    def get(self, element_id: str) -> WebElement:
        return self.driver.find_element("id", element_id)

    def click(self, element_id: str) -> None:
        self.get(element_id).click()

    def read_file_fast(self, path: Path) -> None:
        """Choose a file to be read as fast as the server takes it, and wait for its text."""
        self.click("open-settings")
        self.click("is-fast")
        self.click("close-settings")
        self.get("file").send_keys(str(path))
        self.until("document.querySelector('.final')", "the file's text did not become final")
        self.until_state("idle")

    def get_text(self, selector: str) -> str:
        return str(self.driver.find_element("css selector", selector).text)

    def run(self, script: str, *arguments: object) -> Any:
        """The value of a script's ``return``; promises are waited for."""
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, what: str) -> Any:
        """Wait until this JavaScript expression is true, and return its value."""
        wait = WebDriverWait(self.driver, TIMEOUT_S, poll_frequency=0.05)
        try:
            return wait.until(lambda driver: driver.execute_script(f"return {script}"))
        except TimeoutException:
            raise AssertionError(f"{what}; the page shows: {self.get_text('body')!r}; {self.complaints()}") from None

    def until_state(self, *states: str) -> None:
        wanted = json.dumps(states)
        self.until(f"{wanted}.includes(document.body.dataset.state)", f"no state of {states}")

    def final_text(self) -> str:
        """All finished items in one line."""
        return " ".join(self.run("return [...document.querySelectorAll('.final .said')].map(p => p.textContent)"))

    def heard_s(self) -> float:
        """The page's clock: seconds of audio."""
        return float(self.run(f"return {HEARD_S}"))

    def until_heard(self, seconds: float) -> None:
        self.until(
            f"parseFloat(document.getElementById('elapsed').dateTime.slice(2)) > {seconds}", "the clock stands"
        )

    def notice(self) -> str:
        return str(self.get("notice-text").text)

    def download(self, kind: str) -> str:
        """Choose a format of the save menu and read what is saved."""
        self.click("save")
        self.driver.find_element("css selector", f"[data-format={kind}]").click()
        wait = WebDriverWait(self.driver, TIMEOUT_S, poll_frequency=0.05)
        wait.until(lambda driver: [*self.downloads.glob(f"*.{kind}")], f"no {kind} was saved")
        (path,) = self.downloads.glob(f"*.{kind}")
        return path.read_text()

    def resize(self, size: tuple[int, int]) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False},
        )

    def prefer(self, scheme: str) -> None:
        """The colours that the system prefers: light or dark."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def contrast(self, ink: str, paper: str) -> float:
        """WCAG's contrast ratio of two of the style sheet's colours."""
        style = "return getComputedStyle(document.documentElement).getPropertyValue(arguments[0])"
        bright, dark = sorted((luminance(self.run(style, name)) for name in (ink, paper)), reverse=True)
        return (bright + 0.05) / (dark + 0.05)

    def assert_names(self, selector: str) -> int:
        """All shown elements of this kind have a name for screen readers; returns how many there are."""
        shown = [found for found in self.driver.find_elements("css selector", selector) if found.is_displayed()]
        assert [found.get_attribute("outerHTML") for found in shown if not found.accessible_name] == []
        return len(shown)

    def screenshot(self, path: Path) -> None:
        self.driver.get_screenshot_as_file(str(path))

    def complaints(self) -> list[str]:
        """Console errors and warnings so far, violations of the policy among them; each is told once."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]


def luminance(color: str) -> float:
    """WCAG's relative luminance of ``#rrggbb``."""
    shares = [int(color.strip()[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


@contextmanager
def open_browser(folder: Path, microphone: Path | None, **switches: str) -> Iterator[Page]:
    """A browser that saves to ``folder``; without a recording its microphone is refused."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    # Containers run as root, and have a small /dev/shm.
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "use-fake-device-for-media-stream"):
        options.add_argument(f"--{argument}")
    for name, value in switches.items():
        options.add_argument(f"--{name.replace('_', '-')}={value}")
    if microphone is None:
        options.add_argument("--deny-permission-prompts")
    else:
        options.add_argument("--use-fake-ui-for-media-stream")
        options.add_argument(f"--use-file-for-fake-audio-capture={microphone}%noloop")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield Page(driver, folder)
    finally:
        driver.quit()
