"""OpenAI's items: a turn's id from its first event on, the chain of committed items, and the last ones' contents.

Knows no event; memory is bounded: results of at most ``MAX_KNOWN_ITEMS`` items can be asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.server.wire.events import new_id

MAX_KNOWN_ITEMS = 64


class ItemLog:
    """The items of one connection.

    ``last_id`` is the committed item that the next one follows; ``open_ids`` are those of turns without a result.
    """

    def __init__(self, last_id: str | None = None, open_ids: Mapping[int, str] | None = None) -> None:
        self.last_id = last_id
        self._open_ids = dict(open_ids or {})
        self._previous_ids: dict[str, str | None] = {}
        self._known: dict[str, dict[str, Any]] = {}

    def id_of(self, turn: int) -> str:
        """The id of a turn that has no result yet; chosen when it is first asked for."""
        return self._open_ids.setdefault(turn, new_id("item"))

    def forget(self, turn: int) -> None:
        """The turn was cleared: its id is not used again."""
        self._open_ids.pop(turn, None)

    def commit(self, turn: int) -> tuple[dict[str, Any], str | None]:
        """The turn becomes an item: the item, and the id of the one before it."""
        item_id, previous_id = self.id_of(turn), self.last_id
        self.last_id = item_id
        self._previous_ids[item_id] = previous_id
        self._known[item_id] = _item(item_id, "completed", None)
        while len(self._known) > MAX_KNOWN_ITEMS:
            self._known.pop(next(iter(self._known)))
        return self._known[item_id], previous_id

    def finish(self, turn: int, status: str, transcript: str | None) -> tuple[dict[str, Any], str | None]:
        """The item with its result, and the id of the one before it; the turn has no id any more."""
        item_id = self.id_of(turn)
        del self._open_ids[turn]
        item = _item(item_id, status, transcript)
        if item_id in self._known:
            self._known[item_id] = item
        return item, self._previous_ids.pop(item_id, None)

    def find(self, item_id: str) -> dict[str, Any] | None:
        """An item that was committed not long ago and not deleted."""
        return self._known.get(item_id)

    def delete(self, item_id: str) -> bool:
        """Forget an item's contents; its result, if it is still to come, is told all the same."""
        return self._known.pop(item_id, None) is not None


def _item(item_id: str, status: str, transcript: str | None) -> dict[str, Any]:
    content = {"type": "input_audio", "transcript": transcript}
    head = {"id": item_id, "object": "realtime.item", "type": "message", "role": "user", "status": status}
    return {**head, "content": [content]}
