"""Servers and browsers. Every test here is skipped, with the reason, where no browser can be run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.browser.browser import DESKTOP, Page, open_browser, why_not
from tests.browser.proxy import Relay, relaying
from tests.server.conftest import RunningServer, running
from tests.server.conftest import run_server as run_server
from transom.engine.fake import FakeEngine
from transom.server.settings import ServerSettings

CLIENTS = Path(__file__).parents[2] / "clients"
OpenPage = Callable[..., Page]
RunRelay = Callable[[int], Relay]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def open_page(tmp_path: Path) -> Iterator[OpenPage]:
    """Browsers that end with the test: ``open_page(url, hears=None)`` has no microphone."""
    with ExitStack() as browsers:

        def open_page(url: str, hears: Path | None = CLIENTS / "demo.wav", **options: str) -> Page:
            page = browsers.enter_context(open_browser(tmp_path, hears, **options))
            page.resize(DESKTOP)
            page.driver.get(url)
            page.until_state("idle")
            return page

        yield open_page


@pytest.fixture
def run_relay() -> Iterator[RunRelay]:
    """Relays in front of a port; they end before the browser does."""
    with ExitStack() as relays:
        yield lambda port: relays.enter_context(relaying(port))


@pytest.fixture(scope="session")
def fake_server() -> Iterator[RunningServer]:
    with running(FakeEngine(), ServerSettings()) as shared:
        yield shared
