"""The tests' own world without a network ends completely."""

from __future__ import annotations

import base64

from tests.server.client import speech
from tests.server.in_process import InProcess
from transom.engine.fake import FakeEngine


def test_a_world_that_is_closed_leaves_no_connection_that_waits_for_its_engine() -> None:
    """A connection that is cancelled finishes its text first, if its client may come back."""
    engine = FakeEngine(own_thread=False)
    with InProcess(engine) as world:
        socket = world.connect(query="resume=new")
        socket.send({"type": "input_audio_buffer.append", "audio": base64.b64encode(speech(1.0, 16_000)).decode()})
        socket.send({"type": "input_audio_buffer.commit"})
        world.loop.settle()
        assert socket.is_accepted
    assert socket.task.done()
