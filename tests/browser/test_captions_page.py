"""The live-captions page in a real browser, on the engine that speaks a script."""

from __future__ import annotations

import re

import httpx
import pytest
from websockets.sync.client import connect

from tests.browser.conftest import CLIENTS, OpenPage, RunRelay
from tests.server.conftest import RunningServer, RunServer
from transom.engine.fake import FakeEngine

SCRIPT = "These words come from a script"
SPACE = "\ue00d"


def test_words_come_while_the_microphone_is_heard_and_are_final_after_stop(
    open_page: OpenPage, fake_server: RunningServer
) -> None:
    page = open_page(fake_server.http_url)
    assert page.get_text("#welcome .lead") == "Say something."
    page.driver.find_element("css selector", "main").send_keys(SPACE)
    page.until_state("live")
    page.until(f"document.getElementById('items').textContent.includes('{SCRIPT}')", "no words while it listens")
    assert page.run("return +document.getElementById('level').ariaValueNow") > 0
    page.click("start")
    page.until_state("idle")
    assert page.final_text().startswith(SCRIPT)
    assert page.run("return document.querySelectorAll('.item:not(.final)').length") == 0
    assert page.run("return document.getElementById('announcer').textContent") in page.final_text()
    assert page.complaints() == []


def test_a_file_is_read_as_fast_as_the_server_takes_it_and_saved_in_three_forms(
    open_page: OpenPage, fake_server: RunningServer
) -> None:
    page = open_page(fake_server.http_url)
    page.read_file_fast(CLIENTS / "demo.wav")
    assert page.get_text("#elapsed") == "0:12"
    text = page.download("txt")
    assert text.startswith(SCRIPT)
    assert " ".join(text.split()) == " ".join(page.final_text().split())
    times = r"00:00:\d\d{0}\d{{3}} --> 00:00:\d\d{0}\d{{3}}"
    assert re.match("1\n" + times.format(",") + "\nThese words", page.download("srt"))
    assert re.match("WEBVTT\n\n" + times.format("[.]") + "\nThese words", page.download("vtt"))
    assert page.complaints() == []


def test_a_refused_microphone_is_explained(open_page: OpenPage, fake_server: RunningServer) -> None:
    page = open_page(fake_server.http_url, hears=None)
    page.click("start")
    page.until("!document.getElementById('notice').hidden", "no explanation")
    assert "microphone is not allowed" in page.notice()
    assert page.run("return document.body.dataset.state") == "idle"


def test_a_page_without_https_says_why_it_cannot_listen_and_still_reads_files(
    open_page: OpenPage, fake_server: RunningServer
) -> None:
    page = open_page(f"http://captions.test:{fake_server.port}", host_resolver_rules="MAP captions.test 127.0.0.1")
    page.click("start")
    page.until("!document.getElementById('notice').hidden", "no explanation")
    assert "https://" in page.notice()
    page.get("file").send_keys(str(CLIENTS / "demo.wav"))
    page.until("document.querySelector('.item .said')?.textContent.length > 5", "no words from the file")
    assert page.complaints() == []


def test_a_full_server_is_told_and_the_microphone_is_let_go(open_page: OpenPage, run_server: RunServer) -> None:
    server = run_server(FakeEngine(max_sessions=1))
    page = open_page(server.http_url)
    with connect(server.realtime_url) as other:
        other.recv()
        page.click("start")
        page.until("!document.getElementById('notice').hidden", "no explanation")
        assert "places are in use" in page.notice()
        page.until_state("idle")


def test_a_server_with_keys_is_used_with_one_of_them(open_page: OpenPage, run_server: RunServer) -> None:
    page = open_page(run_server(FakeEngine(), api_keys=("right",)).http_url)
    page.until("!document.getElementById('key-form').hidden", "no field for the key")
    page.get("key").send_keys("wrong\n")
    page.until("!document.getElementById('notice').hidden", "no word about the wrong key")
    assert "does not accept" in page.notice()
    page.get("key").clear()
    page.get("key").send_keys("right\n")
    page.until("document.getElementById('key-form').hidden", "the right key is not taken")
    page.click("start")
    page.until("document.getElementById('items').textContent.includes('These')", "no words with the right key")
    assert "right" not in page.driver.current_url
    assert page.run("return JSON.stringify({...localStorage})").count("right") == 0


def test_a_lost_connection_is_made_again_and_no_audio_is_lost(
    open_page: OpenPage, run_server: RunServer, run_relay: RunRelay
) -> None:
    relay = run_relay(run_server(FakeEngine()).port)
    page = open_page(f"http://127.0.0.1:{relay.port}")
    page.click("start")
    page.until("document.getElementById('items').textContent.includes('These words')", "no words")
    relay.stall()
    page.until_heard(page.heard_s() + 1)
    relay.cut()
    page.until_state("lost")
    assert "Connecting again" in page.notice()
    num_before = len(page.run("return document.getElementById('items').textContent"))
    relay.heal()
    page.until_state("live")
    page.until(f"document.getElementById('items').textContent.length > {num_before}", "no words after the cut")
    page.click("start")
    page.until_state("idle")
    times = page.run("return [...document.querySelectorAll('.when')].map(t => parseFloat(t.dateTime.slice(2)))")
    assert times == sorted(times)
    sessions = [request for request in relay.requests if request.startswith("/v1/realtime")]
    assert len(sessions) == 2
    assert "resume=new" in sessions[0]
    assert int(sessions[1].partition("received=")[2]) > 0
    assert heard_by(f"http://127.0.0.1:{relay.port}", num_streams=2) == pytest.approx(page.heard_s(), abs=0.1)


def heard_by(url: str, num_streams: int) -> float:
    """The audio seconds of so many streams, once all of them are closed."""
    num_closed, heard_s = 0.0, 0.0
    while num_closed < num_streams:
        metrics = httpx.get(f"{url}/metrics").text
        num_closed, heard_s = (
            sum(
                float(value)
                for value in re.findall(rf"^transom_stream_audio_seconds_{kind}\S* (\S+)$", metrics, re.M)
            )
            for kind in ("count", "sum")
        )
    return heard_s


def test_a_server_that_forgot_the_session_begins_a_new_one(
    open_page: OpenPage, run_server: RunServer, run_relay: RunRelay
) -> None:
    server = run_server(FakeEngine(), resume_s=0.001)
    relay = run_relay(server.port)
    page = open_page(f"http://127.0.0.1:{relay.port}")
    page.click("start")
    page.until("document.getElementById('items').textContent.includes('These words')", "no words")
    relay.cut()
    page.until_state("lost")
    relay.heal()
    page.until_state("live")
    assert page.final_text().startswith("These words")
    assert "resume=new" in relay.requests[-1]


def test_a_stopped_server_is_given_up_on_request(open_page: OpenPage, run_server: RunServer) -> None:
    server = run_server(FakeEngine())
    page = open_page(server.http_url)
    page.click("start")
    page.until("document.getElementById('items').textContent.includes('These words')", "no words")
    server.stop()
    page.until_state("lost")
    page.click("start")
    page.until_state("idle")
    assert page.final_text().startswith("These words")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_the_page(open_page: OpenPage, fake_server: RunningServer, scheme: str) -> None:
    """WCAG's 4.5 : 1, also for text that is not final; and the switch wins over the system."""
    page = open_page(fake_server.http_url)
    page.prefer(scheme)
    assert page.contrast("--ink", "--paper") >= 7
    for ink, paper in (("--soft", "--paper"), ("--soft", "--raised"), ("--on-accent", "--accent")):
        assert page.contrast(ink, paper) >= 4.5, (ink, paper)
    assert page.contrast("--warn-ink", "--warn-paper") >= 4.5
    before = page.run("return getComputedStyle(document.body).backgroundColor")
    other = {"light": "dark", "dark": "light"}[scheme]
    page.run(f"document.getElementById('theme').value = '{other}'")
    page.run("document.getElementById('theme').dispatchEvent(new Event('change'))")
    assert page.run("return getComputedStyle(document.body).backgroundColor") != before


def test_every_control_has_a_name_for_screen_readers(open_page: OpenPage, fake_server: RunningServer) -> None:
    page = open_page(fake_server.http_url)
    num_controls = page.assert_names("button, [role=meter], main")
    page.click("open-settings")
    assert num_controls + page.assert_names("dialog button, dialog select, dialog input") >= 15


def test_nothing_is_cut_off_on_a_phone(open_page: OpenPage, fake_server: RunningServer) -> None:
    page = open_page(fake_server.http_url)
    page.resize((320, 640))
    width = page.run("return document.documentElement.scrollWidth")
    assert width <= 320
    for control in ("start", "choose-file", "open-settings", "level", "lag"):
        box = page.get(control).rect
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 320, control
        assert 0 <= box["y"] <= box["y"] + box["height"] <= 640, control
