"""``transom transcribe``: the words of audio files, without a server, in the forms that the server gives them."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing, closing
from itertools import chain
from pathlib import Path
from typing import Any

from tqdm import tqdm

from transom.audio.vad import load_vad
from transom.commands.engine_options import MODEL_HELP, add_engine_options, build_model_engine
from transom.commands.values import delay_ms
from transom.config import TOKEN_MS
from transom.engine.api import Engine, SessionOptions, TextDelta
from transom.errors import AudioError, ConfigError, EngineError, TransomError
from transom.server.files.file_session import BLOCK_SECONDS, FileSession, MakeSplitter
from transom.server.files.pauses import splitters
from transom.server.files.subtitles import to_srt, to_vtt
from transom.server.files.transcript import Transcript, segments_of
from transom.server.files.transcript_events import UNKNOWN_LANGUAGE, to_verbose_json

SUFFIXES = {"text": ".txt", "json": ".json", "srt": ".srt", "vtt": ".vtt"}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``transcribe`` and its options."""
    parser = commands.add_parser("transcribe", help="print the words of audio files, without a server")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="wav, flac, ogg, mp3 ...")
    parser.add_argument("--model", default="bundled", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "--format", choices=tuple(SUFFIXES), default="text", help="json has times of words (default: %(default)s)"
    )
    parser.add_argument(
        "--output-dir", type=Path, metavar="DIR", help="write a file a recording there instead of printing it"
    )
    add_engine_options(parser)
    parser.add_argument("--delay-ms", type=delay_ms, metavar="MS", help="delay of the text (default: the model's)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Print or write each file's transcript; raise TransomError for those that failed, after the others."""
    check_outputs(args.files, args.format, args.output_dir)
    make_splitter = splitters(load_vad())
    engine = build_model_engine(args)
    engine.start()
    failures: list[str] = []
    try:
        for path in args.files:
            try:
                transcript = asyncio.run(transcribe_file(engine, path, args.delay_ms, make_splitter))
            except AudioError as error:
                failures.append(str(error))
            except EngineError as error:
                failures.append(f"{path}: {error}")
            else:
                deliver(transcript, path, args)
    finally:
        engine.stop()
    if failures:
        raise TransomError("\n".join(failures))


def check_outputs(files: Sequence[Path], output_format: str, output_dir: Path | None) -> None:
    """Make the folder. Raises ConfigError where a transcript would have no place of its own."""
    if output_dir is None:
        if len(files) > 1 and output_format in ("srt", "vtt"):
            raise ConfigError(f"several files as {output_format} cannot be told apart; give --output-dir")
        return
    twice = [stem for stem, count in Counter(path.stem for path in files).items() if count > 1]
    if twice:
        raise ConfigError(f"several files would be written to {output_dir / twice[0]}{SUFFIXES[output_format]}")
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {output_dir} ({error.strerror}); choose another") from error


def deliver(transcript: Transcript, path: Path, args: argparse.Namespace) -> None:
    """Print a transcript, its file's name in front where there are several, or write it."""
    text = render(transcript, args.format)
    if args.output_dir is not None:
        target: Path = args.output_dir / f"{path.stem}{SUFFIXES[args.format]}"
        try:
            target.write_text(text + "\n" * (not text.endswith("\n")), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write {target} ({error.strerror}); choose another --output-dir") from error
        print(target, flush=True)
    elif len(args.files) > 1:
        print(f"{path}\t{text}", flush=True)
    else:
        print(text, end="" if text.endswith("\n") else "\n", flush=True)


def render(transcript: Transcript, output_format: str) -> str:
    """A transcript in one of the formats; text and json are one line."""
    match output_format:
        case "json":
            body = to_verbose_json(transcript, UNKNOWN_LANGUAGE, ("segment", "word"))
            return json.dumps(body, ensure_ascii=False)
        case "srt":
            return to_srt(segments_of(transcript))
        case "vtt":
            return to_vtt(segments_of(transcript))
        case _:
            return transcript.text


async def transcribe_file(
    engine: Engine, path: Path, delay_ms: int | None, make_splitter: MakeSplitter
) -> Transcript:
    """What one file says; on a terminal a bar shows how far it is, and the newest words.

    Raises AudioError for an unreadable file and EngineError if the model fails.
    """
    from transom.audio.files import audio_seconds, iter_audio

    blocks = iter_audio(path, BLOCK_SECONDS, engine.info.sample_rate)
    first = next(blocks)
    session = FileSession(engine, SessionOptions(delay_ms=delay_ms), make_splitter(None))
    with closing(session), tqdm(unit="s", disable=None, leave=False, desc=path.name) as bar:
        bar.total = audio_seconds(path)
        async with aclosing(session.run(chain([first], blocks))) as deltas:
            async for delta in deltas:
                _show(bar, delta)
    return session.transcript


def _show(bar: tqdm[Any], delta: TextDelta) -> None:
    """Move the bar to where the newest text is."""
    bar.set_postfix_str(delta.text.strip(), refresh=False)
    bar.update(max(0, round(delta.position * TOKEN_MS / 1000) - bar.n))
