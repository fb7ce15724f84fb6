"""A whole client conversation as the bytes of its TCP stream, to be cut off anywhere with a reset."""

from __future__ import annotations

import base64
import json
import socket
import struct
from typing import Any

from websockets.frames import Frame, Opcode

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def conversation(path: str, audio: bytes, chunk_bytes: int) -> bytes:
    """Upgrade, settings, appends, commit, clear, close."""
    request = (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    events: list[dict[str, Any]] = [{"type": "session.update", "session": {"type": "transcription"}}]
    for start in range(0, len(audio), chunk_bytes):
        encoded = base64.b64encode(audio[start : start + chunk_bytes]).decode()
        events.append({"type": "input_audio_buffer.append", "audio": encoded})
    events += [{"type": "input_audio_buffer.commit"}, {"type": "input_audio_buffer.clear"}]
    frames = [Frame(Opcode.TEXT, json.dumps(event).encode()) for event in events]
    frames.append(Frame(Opcode.CLOSE, struct.pack("!H", 1000)))
    return request.encode() + b"".join(frame.serialize(mask=True) for frame in frames)


def send_and_reset(port: int, stream: bytes, num_reads: int) -> None:
    """Send these bytes, read a few times what is there to read, and reset the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(stream)
        for _ in range(num_reads):
            connection.recv(512)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
