"""WebSocket upgrades whose ``Connection`` header stands on several lines."""

from __future__ import annotations

import pytest
from websockets.exceptions import InvalidStatus

from tests.server.client import open_client
from tests.server.conftest import RunningServer


async def test_an_upgrade_whose_connection_header_is_spread_over_two_lines_is_accepted(server: RunningServer) -> None:
    """LiveKit's Mistral plugin; uvicorn alone answers 404."""
    async with open_client(server.realtime_url, additional_headers={"Connection": "keep-alive"}) as client:
        assert client.seen[0]["type"] == "session.created"


async def test_another_protocol_is_no_websocket(server: RunningServer) -> None:
    with pytest.raises(InvalidStatus, match="404"):
        async with open_client(server.realtime_url, additional_headers={"Upgrade": "h2c"}):
            raise AssertionError("connected")
