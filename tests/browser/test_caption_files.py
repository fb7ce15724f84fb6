"""The page's modules that need no server: how words become subtitles, and how events become a transcript."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.browser.browser import Page
from tests.browser.conftest import OpenPage
from tests.server.conftest import RunningServer

TRANSCRIPTION = "conversation.item.input_audio_transcription"


@pytest.fixture
def page(open_page: OpenPage, fake_server: RunningServer) -> Page:
    return open_page(fake_server.http_url)


def captions(page: Page, function: str, items: list[dict[str, Any]]) -> Any:
    return page.run(f"return import('/static/captions.js').then(module => module.{function}(arguments[0]))", items)


def item(*words: tuple[str, float, float]) -> dict[str, Any]:
    timed = [{"word": word, "start": start, "end": end} for word, start, end in words]
    return {"text": " ".join(word for word, *_ in words), "words": timed, "startS": words[0][1], "endS": words[-1][2]}


def test_a_pause_and_the_end_of_a_sentence_begin_a_new_cue(page: Page) -> None:
    items = [item(("One", 0.0, 0.4), ("two.", 0.4, 0.9), ("Three", 1.0, 1.4), ("four", 3.0, 3.5))]
    cues = captions(page, "makeCues", items)
    assert [(cue["start"], cue["end"], cue["text"]) for cue in cues] == [
        (0.0, 0.9, "One two."),
        (1.0, 1.8, "Three"),
        (3.0, 3.8, "four"),
    ]


def test_a_cue_is_short_and_does_not_reach_into_the_next(page: Page) -> None:
    items = [item(*((f"word{index}", index * 0.3, index * 0.3 + 0.24) for index in range(200)))]
    cues = captions(page, "makeCues", items)
    assert all(len(cue["text"]) <= 84 and cue["end"] - cue["start"] <= 6 for cue in cues)
    assert all(first["end"] <= second["start"] for first, second in pairwise(cues))
    assert " ".join(cue["text"] for cue in cues) == items[0]["text"]
    lines = captions(page, "toSrt", items).splitlines()
    assert max(len(line) for line in lines) <= 48


def test_files_have_hours_and_no_markup_of_the_speaker(page: Page) -> None:
    items = [item(("a<b>", 3661.25, 3662.0), ("&c", 3662.0, 3662.5))]
    assert captions(page, "toSrt", items) == "1\n01:01:01,250 --> 01:01:02,500\na<b> &c\n"
    assert captions(page, "toVtt", items) == "WEBVTT\n\n01:01:01.250 --> 01:01:02.500\na&lt;b&gt; &amp;c\n"


def test_an_item_without_word_times_is_one_cue(page: Page) -> None:
    whole = {"text": " Hello there", "words": [], "startS": 1.0, "endS": 4.0}
    assert captions(page, "toVtt", [whole]) == "WEBVTT\n\n00:00:01.000 --> 00:00:04.000\nHello there\n"
    assert captions(page, "toText", [whole, item(("Bye", 5.0, 5.5))]) == "Hello there\nBye\n"


def test_words_of_later_connections_go_on_in_the_clock_of_the_page(page: Page) -> None:
    """Events of two sessions; the second one's audio began 10 s later. An item that holds no words leaves no row."""
    events = [
        [{"type": f"{TRANSCRIPTION}.delta", "item_id": "a", "delta": " Hi"}, 0, 1.0],
        [
            {
                "type": f"{TRANSCRIPTION}.delta",
                "item_id": "a",
                "delta": " you",
                "words": [{"word": "Hi", "start": 0.32, "end": 0.64}],
            },
            0,
            1.2,
        ],
        [
            {
                "type": f"{TRANSCRIPTION}.completed",
                "item_id": "a",
                "transcript": " Hi you",
                "words": [{"word": "Hi", "start": 0.32, "end": 0.64}, {"word": "you", "start": 0.64, "end": 0.88}],
            },
            0,
            1.5,
        ],
        [{"type": "input_audio_buffer.speech_started", "item_id": "b", "audio_start_ms": 500}, 10, 11],
        [{"type": f"{TRANSCRIPTION}.completed", "item_id": "b", "transcript": ""}, 10, 12],
        [{"type": "input_audio_buffer.speech_started", "item_id": "c", "audio_start_ms": 2500}, 10, 13],
        [{"type": f"{TRANSCRIPTION}.delta", "item_id": "c", "delta": " lost"}, 10, 14],
    ]
    script = """
        return import('/static/transcript.js').then(({ Transcript }) => {
          const changes = [];
          const transcript = new Transcript((item, change) => changes.push(item.id + ' ' + change));
          for (const event of arguments[0]) transcript.take(...event);
          transcript.closeAll();
          return [changes, transcript.items, transcript.newestWordEndS];
        });
    """
    changes, items, newest = page.run(script, events)
    assert changes == [
        "a added", "a grown", "a grown", "a final", "b added", "b removed", "c added", "c grown", "c final",
    ]  # fmt: skip
    assert [(it["text"], it["startS"], it["isFinal"]) for it in items] == [
        (" Hi you", 0.32, True),
        (" lost", 12.5, True),
    ]
    assert [word["word"] for word in items[0]["words"]] == ["Hi", "you"]
    assert newest == 0.88
