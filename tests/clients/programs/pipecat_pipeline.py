"""Drives a speech-to-text service in a pipecat pipeline: 20 ms frames at the pace of speech, then silence."""

from __future__ import annotations

import asyncio

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    ProposedUserStoppedSpeakingFrame,
    TranscriptionFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.audio.vad_processor import VADProcessor
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.stt_service import STTService
from pipecat.workers.runner import WorkerRunner

from tests.clients.programs.common import Recording, report

FRAME_MS = 20
STOP_S = 0.8  # pipecat's default of 0.2 s ends a turn in the middle of a sentence


class Listener(FrameProcessor):  # type: ignore[misc]
    """Stands behind the service and keeps what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.transcripts: list[str] = []
        self.interims: list[str] = []
        self.num_turns = 0
        self.progress = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TranscriptionFrame):
            self.transcripts.append(frame.text)
        elif isinstance(frame, InterimTranscriptionFrame):
            self.interims.append(frame.text)
        elif isinstance(frame, VADUserStoppedSpeakingFrame | ProposedUserStoppedSpeakingFrame):
            self.num_turns += 1
        self.progress.set()
        await self.push_frame(frame, direction)


async def drive(service: STTService, recording: Recording, *, has_detector: bool) -> None:
    """Speak; report every transcript once as many have come as turns have ended. An error ends the program."""
    listener = Listener()
    analyzer = SileroVADAnalyzer(params=VADParams(stop_secs=STOP_S))
    detector = [VADProcessor(vad_analyzer=analyzer)] if has_detector else []
    worker = PipelineWorker(
        Pipeline([*detector, service, listener]),
        params=PipelineParams(audio_in_sample_rate=recording.rate),
        enable_rtvi=False,
        cancel_on_idle_timeout=False,
    )
    is_ready = asyncio.Event()
    errors: list[str] = []

    @worker.event_handler("on_pipeline_started")  # type: ignore[untyped-decorator]
    async def on_pipeline_started(worker: PipelineWorker, frame: Frame) -> None:
        is_ready.set()

    @worker.event_handler("on_pipeline_error")  # type: ignore[untyped-decorator]
    async def on_pipeline_error(worker: PipelineWorker, frame: ErrorFrame) -> None:
        errors.append(frame.error)

    async def speak() -> None:
        await is_ready.wait()
        async for piece in recording.with_silence().paced_pieces(FRAME_MS):
            await worker.queue_frame(InputAudioRawFrame(piece, recording.rate, 1))
        while not 0 < listener.num_turns <= len(listener.transcripts):
            listener.progress.clear()
            await listener.progress.wait()
        await worker.queue_frame(EndFrame())

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await asyncio.gather(runner.run(), speak())
    report(listener.transcripts, listener.interims, errors=errors)
