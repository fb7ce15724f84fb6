"""``transom transcribe``: the words of audio files, without a server."""

from __future__ import annotations

import argparse
import queue
from pathlib import Path
from typing import Any

from tqdm import tqdm

from transom.commands.engine_options import MODEL_HELP, add_engine_options, build_model_engine
from transom.commands.values import delay_ms
from transom.config import TOKEN_MS
from transom.engine.api import Engine, Event, SessionOptions, TextDelta, TurnCompleted, TurnFailed
from transom.errors import AudioError, EngineError, TransomError

BLOCK_SECONDS = 1.0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``transcribe`` and its options."""
    parser = commands.add_parser("transcribe", help="print the words of audio files, without a server")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="wav, flac, ogg, mp3 ...")
    parser.add_argument("--model", default="bundled", metavar="MODEL", help=MODEL_HELP)
    add_engine_options(parser)
    parser.add_argument("--delay-ms", type=delay_ms, metavar="MS", help="delay of the text (default: the model's)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Print a line a file, its name in front where there are several; raise TransomError for those that failed."""
    engine = build_model_engine(args)
    engine.start()
    failures: list[str] = []
    try:
        for path in args.files:
            try:
                text = transcribe_file(engine, path, args.delay_ms)
            except (AudioError, EngineError) as error:
                failures.append(str(error))
            else:
                print(f"{path}\t{text}" if len(args.files) > 1 else text, flush=True)
    finally:
        engine.stop()
    if failures:
        raise TransomError("\n".join(failures))


def transcribe_file(engine: Engine, path: Path, delay_ms: int | None) -> str:
    """The text of one file; on a terminal a bar shows how far it is, and the newest words.

    Raises AudioError for an unreadable file and EngineError if the model fails.
    """
    import soundfile  # here: transom doctor must run without the audio libraries

    from transom.audio.files import iter_audio

    events: queue.Queue[Event] = queue.Queue()
    session = engine.open_session(SessionOptions(delay_ms=delay_ms), events.put)
    try:
        with tqdm(unit="s", disable=None, leave=False, desc=path.name) as bar:
            for block in iter_audio(path, BLOCK_SECONDS, engine.info.sample_rate):
                bar.total = bar.total or round(soundfile.info(path).duration)
                while session.is_full:
                    _show(bar, events.get())
                session.append(block)
            session.commit()
            while not isinstance(event := events.get(), TurnCompleted):
                _show(bar, event)
            return event.text
    finally:
        session.close()


def _show(bar: tqdm[Any], event: Event) -> None:
    """Move the bar to where the newest text is. Raises EngineError for a failed turn."""
    if isinstance(event, TurnFailed):
        raise EngineError(f"{bar.desc}: {event.message}")
    if isinstance(event, TextDelta):
        bar.set_postfix_str(event.text.strip(), refresh=False)
        bar.update(max(0, round(event.position * TOKEN_MS / 1000) - bar.n))
