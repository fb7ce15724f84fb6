"""uvicorn's HTTP, except that the header ``Connection`` may stand on several lines, as RFC 9110 (5.3) allows.

uvicorn 0.54 reads the last line only. LiveKit's Mistral plugin sends ``Upgrade`` on one line and its HTTP client's
``keep-alive`` on the next: its WebSocket would be answered with 404.
"""

from __future__ import annotations

from uvicorn.protocols.http.h11_impl import H11Protocol


class LenientProtocol(H11Protocol):
    """One connection."""

    def _get_upgrade(self) -> bytes | None:
        values = {
            wanted: b",".join(value.lower() for name, value in self.headers if name == wanted)
            for wanted in (b"connection", b"upgrade")
        }
        tokens = [token.strip() for token in values[b"connection"].split(b",")]
        return values[b"upgrade"] if b"upgrade" in tokens else None
