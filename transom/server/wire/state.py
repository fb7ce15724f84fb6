"""What a dialect remembers, as JSON: enough to go on with the same settings and items on another connection.

Turns are numbered from 0 again on the new connection, so unfinished items stand here by their ids only: their results
are told by the connection that began them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast, get_args

from transom.server.wire.fields import mapping, one_of, optional_text, optional_texts
from transom.server.wire.messages import DialectName


@dataclass(frozen=True)
class WireState:
    """``settings`` are the session object as the dialect shows it; ``last_item_id`` is what the next item follows.

    ``unfinished_item_ids`` were told to the client and have no result yet, oldest first.
    """

    dialect: DialectName
    settings: Mapping[str, Any]
    last_item_id: str | None = None
    unfinished_item_ids: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON object that :meth:`from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> WireState:
        """Read what :meth:`to_json` wrote. Raises WireError if it is something else."""
        given = mapping(value, "state")
        return cls(
            cast(DialectName, one_of(given.get("dialect"), "state.dialect", get_args(DialectName))),
            mapping(given.get("settings"), "state.settings"),
            optional_text(given, "last_item_id", "state"),
            optional_texts(given, "unfinished_item_ids", "state") or (),
        )
