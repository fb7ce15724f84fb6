"""Whatever a client sends, it gets a clear error, the socket stays open, and no audio is lost."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.server.client import Client, open_client, speech
from tests.server.conftest import RunningServer
from transom.engine.fake_script import SENTENCE_WORDS
from transom.server.wire.messages import WireError
from transom.server.wire.parse import parse_event

APPEND = "input_audio_buffer.append"


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        ("null", "null"),
        ("[]", "a list"),
        ("1.5", "a number"),
        ("1", "a number"),
        ('"x"', "a string"),
        ("true", "true"),
    ],
)
def test_what_is_no_object_is_called_as_in_json(frame: str, kind: str) -> None:
    with pytest.raises(WireError, match=f"must be a JSON object, not {kind}"):
        parse_event(frame)


@pytest.mark.parametrize(
    ("frame", "code", "param"),
    [
        ("", "invalid_json", None),
        ('{"type":', "invalid_json", None),
        ("[" * 100_000, "invalid_json", None),
        ('{"type": 1' + "0" * 5000 + "}", "invalid_json", None),
        ("[]", "invalid_json", None),
        ("null", "invalid_json", None),
        (b"\xff\xfe\x00garbage", "invalid_json", None),
        (speech(0.01), "invalid_json", None),
        ("{}", "missing_required_parameter", "type"),
        ({"type": 3}, "missing_required_parameter", "type"),
        ({"type": "session.update"}, "missing_required_parameter", "session"),
        ({"type": "session.update", "session": []}, "missing_required_parameter", "session"),
        ({"type": "session.update", "session": {"audio": 3}}, "invalid_value", "session.audio"),
        ({"type": "no.such.event"}, "unknown_event", "type"),
        ('{"type": "no.such.event", "event_id": "' + 513 * "m" + '"}', "invalid_value", "event_id"),
        ('{"type": "\\ud800"}', "invalid_json", None),
        ('{"type": "session.update", "session": {"audio": NaN}}', "invalid_json", None),
        ({"type": "response.create"}, "unsupported_event", "type"),
        ({"type": "conversation.item.create", "item": {}}, "unsupported_event", "type"),
        ({"type": APPEND}, "invalid_audio", "audio"),
        ({"type": APPEND, "audio": 3}, "invalid_audio", "audio"),
        ({"type": APPEND, "audio": "Zm9v!"}, "invalid_audio", "audio"),
        ({"type": APPEND, "audio": "Zm9vY"}, "invalid_audio", "audio"),
        ({"type": APPEND, "audio": "ö"}, "invalid_audio", "audio"),
        (
            {"type": APPEND, "audio": base64.b64encode(bytes(15 * 1024 * 1024 + 1)).decode()},
            "audio_too_large",
            "audio",
        ),
    ],
)
async def test_errors_name_the_cause(
    server: RunningServer, frame: str | bytes | dict[str, Any], code: str, param: str | None
) -> None:
    async with open_client(f"{server.realtime_url}?intent=transcription") as client:
        await client.append(speech(0.32))
        if isinstance(frame, dict):
            frame = json.dumps({**frame, "event_id": "mine"})
        await client.socket.send(frame)
        error = (await client.receive("error"))["error"]
        assert (error["code"], error["param"], error["type"]) == (code, param, "invalid_request_error")
        assert error["event_id"] == ("mine" if "mine" in str(frame) else None)
        assert len(error["message"]) < 1000
        await client.append(speech(0.32))
        await client.commit()
        await client.until("conversation.item.done")
    assert client.transcripts() == [" ".join(SENTENCE_WORDS[:2])]


async def test_a_binary_frame_may_hold_the_json(server: RunningServer) -> None:
    async with open_client(server.realtime_url) as client:
        await client.socket.send(json.dumps({"type": "session.update", "session": {}}).encode())
        await client.receive("session.updated")


async def test_an_update_with_one_wrong_value_changes_nothing(server: RunningServer) -> None:
    async with open_client(server.realtime_url) as client:
        before = await client.configure(transcription={"model": "first"})
        wrong = {"format": {"rate": 16_000}, "transcription": {"model": "second", "delay": "never"}}
        await client.send("session.update", session={"audio": {"input": wrong}})
        await client.receive("error")
        assert await client.configure() == before


async def test_requests_for_what_is_not_there_are_no_errors(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """LiveKit and openai-agents take any error event for the end of the session."""
    async with open_client(server.realtime_url) as client:
        for _ in range(2):
            effective = await client.configure(
                turn_detection={"type": "semantic_vad"},
                transcription={"language": "de", "model": "gpt-4o-transcribe"},
            )
            assert effective["turn_detection"] == {"type": "semantic_vad", "eagerness": "auto"}
            assert effective["transcription"]["language"] == "de"
            assert effective["transcription"]["model"] == "gpt-4o-transcribe"
    told = [record.getMessage() for record in caplog.records if "without effect" in record.getMessage()]
    assert len(told) == 1
    assert told[0].endswith("accepted without effect: language")


async def test_a_beta_client_is_served(server: RunningServer) -> None:
    """What Home Assistant's ``openai_stt`` sends; it returns at the first ``completed``."""
    headers = {"OpenAI-Beta": "realtime=v1", "Authorization": "Bearer key"}
    async with connect(f"{server.realtime_url}?intent=transcription", additional_headers=headers) as socket:
        client = Client(socket)
        await client.receive("transcription_session.created")
        session = {
            "input_audio_format": "pcm16",
            "input_audio_transcription": {"model": "gpt-4o-transcribe", "prompt": "", "language": "en"},
            "turn_detection": {"type": "server_vad"},
            "input_audio_noise_reduction": {"type": "near_field"},
        }
        await client.send("transcription_session.update", session=session)
        await client.receive("transcription_session.updated")
        await client.append(speech(0.64))
        await client.commit()
        await client.until("conversation.item.input_audio_transcription.completed")
    assert client.transcripts() == [" ".join(SENTENCE_WORDS[:2])]
