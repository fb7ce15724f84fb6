"""Streams the recordings through the real server on the bundled model, and runs them offline for comparison."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from websockets.sync.client import connect

from tests.parity.driver import Utterance, make_runner, teacher_forced_logits
from transom.audio.files import read_audio
from transom.audio.pcm import PcmDecoder, encode_pcm16
from transom.config import CacheConfig, CpuKernels, EngineConfig
from transom.engine.api import EngineInfo, EngineSession, EngineStats, Event, Publish, SessionOptions, TurnCompleted
from transom.engine.build import LoadedModel, build_engine, load_model, make_prompt
from transom.engine.engine import Engine
from transom.weights.hub import bundled_model

FOLDER = Path(__file__).parent / "audio"
TRANSCRIPTS = Path(__file__).parent / "transcripts.json"
STEADY = "clock.flac"  # the text stays letter by letter through another resampling, or a detector's cut
RECORDINGS = ("room.wav", "clock.flac", "river.ogg", "letter.mp3", "telephone.wav")
TIMEOUT_S = 120


@dataclass(frozen=True)
class Transcript:
    """What the model wrote: text and every emitted id, silence and word marks included."""

    text: str
    token_ids: tuple[int, ...]


def stored_transcripts() -> dict[str, Transcript]:
    """The golden transcripts in the repository."""
    entries = json.loads(TRANSCRIPTS.read_text())
    return {name: Transcript(entry["text"], tuple(entry["token_ids"])) for name, entry in entries.items()}


def stored_greedy_ids() -> dict[str, tuple[int, ...]]:
    """What the bundled model emits without hypotheses, in the repository."""
    entries = json.loads(TRANSCRIPTS.read_text())
    return {name: tuple(entry["greedy_token_ids"]) for name, entry in entries.items()}


def recording(name: str) -> NDArray[np.float32]:
    """Samples at 16 kHz, on PCM16's grid as a client sends them."""
    return PcmDecoder().decode(encode_pcm16(read_audio(FOLDER / name)))


class ObservedEngine:
    """An engine whose completed turns are kept, with their token ids, which no wire protocol carries."""

    def __init__(self, engine: Engine) -> None:
        self.info: EngineInfo = engine.info
        self.start, self.stop, self.observe_steps = engine.start, engine.stop, engine.observe_steps
        self.completed: list[TurnCompleted] = []
        self._engine = engine

    def open_session(self, options: SessionOptions, publish: Publish) -> EngineSession:
        def observe(event: Event) -> None:
            if isinstance(event, TurnCompleted):
                self.completed.append(event)
            publish(event)

        return self._engine.open_session(SessionOptions(options.delay_ms, keep_token_ids=True), observe)

    @property
    def is_running(self) -> bool:
        return self._engine.is_running

    def stats(self) -> EngineStats:
        return self._engine.stats()


def load_bundled(cpu_kernels: CpuKernels = "torch") -> LoadedModel:
    """The model that ships with the package."""
    return load_model(bundled_model(), "bundled", "cpu", cpu_kernels=cpu_kernels)


def observed_engine(loaded: LoadedModel, num_hypotheses: int | None = None) -> ObservedEngine:
    """A small engine on a loaded model."""
    config = EngineConfig(max_sessions=2, num_hypotheses=num_hypotheses)
    return ObservedEngine(build_engine(loaded, CacheConfig(budget_bytes=512 << 20), config))


def stream(url: str, audio: bytes, generator: np.random.Generator) -> str:
    """Send PCM16 at 16 kHz in random pieces, odd ones too; the transcript, which its deltas add up to."""
    with connect(url, max_size=None, compression=None) as socket:

        def send(kind: str, **fields: Any) -> None:
            socket.send(json.dumps({"type": kind, **fields}))

        audio_input = {"format": {"type": "audio/pcm", "rate": 16_000}}
        send("session.update", session={"type": "transcription", "audio": {"input": audio_input}})
        while audio:
            size = int(generator.integers(1, 20_000))
            piece, audio = audio[:size], audio[size:]
            send("input_audio_buffer.append", audio=base64.b64encode(piece).decode())
        send("input_audio_buffer.commit")
        deltas = ""
        while True:
            event = json.loads(socket.recv(timeout=TIMEOUT_S))
            if event["type"].endswith(".delta"):
                deltas += event["delta"]
            elif event["type"].endswith(".completed"):
                assert deltas == event["transcript"]
                return deltas
            elif event["type"] in ("error", "conversation.item.input_audio_transcription.failed"):
                raise AssertionError(event)


@torch.inference_mode()
def choices_offline(loaded: LoadedModel, samples: NDArray[np.float32], token_ids: tuple[int, ...]) -> tuple[int, ...]:
    """What the model chooses after each of its own tokens when the whole utterance is one single step."""
    prompt = make_prompt(loaded.model.config, loaded.tokenizer)
    delay_tokens = prompt.default_delay_tokens
    num_prompt_tokens = prompt.num_tokens(delay_tokens)
    tail_samples = -len(samples) % 1280 + 1280 * prompt.right_pad_tokens(delay_tokens)
    padded = np.pad(samples, (1280 * prompt.left_pad_tokens, tail_samples))
    ids = (*map(prompt.input_id, range(num_prompt_tokens)), *token_ids[:-1])
    assert len(padded) == 1280 * len(ids)
    runner, cache = make_runner(loaded.model, max_step_tokens=len(ids), library=loaded.library)
    logits = teacher_forced_logits(runner, cache, Utterance(padded, ids, delay_tokens), [len(ids)])
    return tuple(logits[num_prompt_tokens - 1 :].argmax(dim=-1).tolist())
