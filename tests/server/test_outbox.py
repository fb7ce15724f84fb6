"""The queue to a client: adjacent deltas of one item are joined, order is kept, fullness is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.server.outbox import Outbox

EVENTS = st.lists(
    st.one_of(
        st.builds(
            lambda item, text: {"type": "x.delta", "item_id": item, "delta": text}, st.integers(0, 2), st.text()
        ),
        st.builds(lambda text: {"type": "transcription.delta", "delta": text}, st.text()),
        st.builds(lambda text: {"type": "transcription.text.delta", "text": text}, st.text()),
        st.builds(
            lambda text, words: {"type": "y.delta", "delta": text, "words": words},
            st.text(),
            st.lists(st.integers(), min_size=1),
        ),
        st.builds(lambda text: {"type": "y.delta", "delta": text}, st.text()),
        st.builds(lambda text: {"type": "done", "text": text}, st.text()),
        st.builds(lambda n: {"type": "other", "n": n}, st.integers()),
    )
)


def merged(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = []
    for event in events:
        key = (event["type"], event.get("item_id"))
        if event["type"].endswith("delta") and result and (result[-1]["type"], result[-1].get("item_id")) == key:
            parts: dict[str, Any] = {
                field: result[-1][field] + event[field] for field in ("delta", "text") if field in event
            }
            if words := [*result[-1].get("words", []), *event.get("words", [])]:
                parts["words"] = words
            result[-1] = {**event, **parts}
        else:
            result.append(event)
    return result


@given(events=EVENTS)
def test_waiting_deltas_are_joined_and_nothing_else_changes(events: list[dict[str, Any]]) -> None:
    async def fill_and_drain() -> None:
        outbox = Outbox(max_events=1, max_chars=1)
        for event in events:
            outbox.put(event)
        expected = merged(events)
        async with asyncio.timeout(5):
            assert [json.loads(await outbox.get() or "") for _ in expected] == expected
        assert not outbox.is_full

    asyncio.run(fill_and_drain())


@pytest.mark.parametrize("event", [{"type": "answer"}, {"type": "x.delta", "delta": "z" * 50}])
async def test_an_unread_outbox_is_full_until_it_is_read(event: dict[str, Any]) -> None:
    outbox = Outbox(max_events=3, max_chars=140)
    while not outbox.is_full:
        outbox.put(event)
    waiting = asyncio.create_task(outbox.wait_for_room())
    await outbox.get()
    await asyncio.wait_for(waiting, 5)


async def test_a_lone_surrogate_that_is_echoed_stays_a_valid_frame() -> None:
    outbox = Outbox(max_events=3, max_chars=100)
    outbox.put({"type": "error", "event_id": "\ud800"})
    assert (await outbox.get() or "").encode("utf-8") == b'{"type":"error","event_id":"\\ud800"}'


async def test_what_waits_is_still_given_after_the_end() -> None:
    outbox = Outbox(max_events=3, max_chars=100)
    outbox.put({"type": "answer"})
    outbox.end()
    assert [await outbox.get(), await outbox.get()] == ['{"type":"answer"}', None]
