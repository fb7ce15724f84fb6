"""How many streams does a server hold? Paced clients in processes of their own, more and more of them.

    python -m benchmarks.streams [--streams 4,8,16,24,32,48,64] [--seconds 30] [--plot docs/streams.png]
                                 [--json FILE] [-- SERVE_OPTION ...]

``transom serve`` runs in its own process, without its bound on the load, so that the curve goes past the limit. Every
client streams recordings with pauses between, in chunks of 80 ms, and begins with another one than its neighbour.
Lags are those of ``paced_clients``: beyond the model's delay; quantiles are over all pieces of text that came while
all clients were streaming. N streams are held if 95 % of them came within 200 ms and nobody was refused. At the end a
server with its usual bound gets a client every half second, as many as the longest stage had: whom does it refuse,
and how late is it for the others? The words that clients get are compared with those of an engine that hears one
recording after the other.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.paced_clients import CHUNK_BYTES, CHUNK_S, RATE, Piece, Seen, Speech, Stage, run_clients
from benchmarks.processes import Server, cpu_seconds, machine_cpu_seconds, serving
from transom.audio.files import read_audio
from transom.audio.pcm import PcmDecoder, encode_pcm16
from transom.cli import make_parser
from transom.engine.api import Event, SessionOptions, TextDelta

RECORDINGS = (
    "clients/demo.wav",
    *(f"tests/golden/audio/{name}" for name in ("room.wav", "clock.flac", "letter.mp3")),
)
PAUSE_S = 1.0
SPAWN_S = 4.0
SETTLE_S = 3.0
RAMP_S = 2.0
SLOW_ARRIVAL_S = 0.5
MAX_P95_MS = 200.0


@dataclass(frozen=True)
class Used:
    """Processors that the server, the clients and all others used, and the server's ``transom_engine_load``."""

    server: float
    clients: float
    others: float
    load: float


@dataclass(frozen=True)
class Result:
    """One stage. Times in ms; ``second_p95_ms`` is the lag's 95th percentile of each second, for the curve.

    ``server_cores`` and ``client_cores`` are the processors that were used, ``other_cores`` those of anybody else.
    """

    streams: int
    refused: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    first_p95_ms: float
    final_p50_ms: float
    final_p95_ms: float
    unfinished: int
    differing: int
    late_chunks: int
    server_cores: float
    client_cores: float
    other_cores: float
    load: float
    second_p95_ms: tuple[float, ...]

    @property
    def is_held(self) -> bool:
        """Whether nobody was refused or late."""
        return not self.refused and not self.unfinished and self.p95_ms < MAX_P95_MS


def make_speeches(seconds: float, options: Sequence[str]) -> tuple[Speech, ...]:
    """What the clients say, each recording first once, and what an engine that nobody else uses writes of it."""
    from transom.commands.engine_options import build_model_engine
    from transom.engine.engine import Engine

    engine = build_model_engine(make_parser().parse_args(["serve", *options, "--max-sessions", "1"]))
    assert isinstance(engine, Engine)
    engine.run_without_thread()
    sounds = [encode_pcm16(read_audio(Path(name), RATE)) + bytes(int(2 * RATE * PAUSE_S)) for name in RECORDINGS]
    num_bytes = int(seconds / CHUNK_S) * CHUNK_BYTES
    speeches = []
    for first in range(len(sounds)):
        once = b"".join(sounds[first:] + sounds[:first])
        pcm16 = (once * (1 + num_bytes // len(once)))[:num_bytes]
        events: list[Event] = []
        session = engine.open_session(SessionOptions(), events.append)
        session.append(PcmDecoder().decode(pcm16))
        session.commit()
        while engine.run_step():
            pass
        session.close()
        speeches.append(speech_of(pcm16, events, engine.stepper.prompt.left_pad_tokens))
    return tuple(speeches)


def speech_of(pcm16: bytes, events: Sequence[Event], left_pad_tokens: int) -> Speech:
    """Audio with the text that it gave and the token of each of its pieces."""
    text, pieces = "", []
    for event in events:
        if isinstance(event, TextDelta):
            text += event.text
            pieces.append(Piece(len(text), event.position - left_pad_tokens))
    return Speech(pcm16, text, tuple(pieces))


def run_stage(
    server: Server, speeches: tuple[Speech, ...], num_streams: int, arrival_s: float, num_processes: int
) -> Result:
    """Run one stage against a server that has nothing else to do."""
    numbers = range(num_streams)
    start_s = time.monotonic() + SPAWN_S
    stages = [
        Stage(server.realtime_url, speeches, tuple(numbers[first::num_processes]), start_s, arrival_s)
        for first in range(min(num_processes, num_streams))
    ]
    # From when the last client has come and settled until the first one commits.
    window_s = (num_streams * arrival_s + SETTLE_S, speeches[0].num_chunks * CHUNK_S)
    with ProcessPoolExecutor(len(stages), multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(run_clients, stage) for stage in stages]
        server_cores, all_cores, load = watch(server, start_s + window_s[0], start_s + window_s[1])
        results = [future.result() for future in running]
    clients = sum(client_s for _, client_s in results) / (window_s[1] + num_streams * arrival_s)
    used = Used(server_cores, clients, max(0.0, all_cores - server_cores - clients), load)
    return summarise([one for some, _ in results for one in some], window_s, used)


def watch(server: Server, from_s: float, until_s: float) -> tuple[float, float, float]:
    """Processors that the server and the whole machine use in that time, and the server's load in its middle."""
    time.sleep(max(0.0, from_s - time.monotonic()))
    begun_s, server_s, machine_s = time.monotonic(), cpu_seconds(server.pid), machine_cpu_seconds()
    time.sleep(max(0.0, (until_s - begun_s) / 2))
    load = server.metric("transom_engine_load")
    time.sleep(max(0.0, until_s - time.monotonic()))
    took_s = time.monotonic() - begun_s
    return (cpu_seconds(server.pid) - server_s) / took_s, (machine_cpu_seconds() - machine_s) / took_s, load


def summarise(seen: Sequence[Seen], window_s: tuple[float, float], used: Used) -> Result:
    """Quantiles of the lags within ``window_s`` of the stage, when all clients were streaming."""
    served = [one for one in seen if not one.was_refused]
    lags = [lag for one in served for lag in one.lags if window_s[0] <= lag.at_s < window_s[1]]
    p50, p95, p99 = quantiles_ms([lag.lag_s for lag in lags], 0.5, 0.95, 0.99)
    by_second: dict[int, list[float]] = {}
    for one in served:
        for lag in one.lags:
            by_second.setdefault(int(lag.at_s), []).append(lag.lag_s)
    finals = [one.finalisation_s for one in served if one.finalisation_s is not None]
    final_p50, final_p95 = quantiles_ms(finals, 0.5, 0.95)
    (first_p95,) = quantiles_ms([one.first_lag_s for one in served if one.first_lag_s is not None], 0.95)
    return Result(
        streams=len(seen),
        refused=len(seen) - len(served),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        first_p95_ms=first_p95,
        final_p50_ms=final_p50,
        final_p95_ms=final_p95,
        unfinished=len(served) - len(finals),
        differing=sum(one.differs for one in served),
        late_chunks=sum(one.num_late_chunks for one in served),
        server_cores=used.server,
        client_cores=used.clients,
        other_cores=used.others,
        load=used.load,
        second_p95_ms=tuple(
            quantiles_ms(by_second.get(second, []), 0.95)[0] for second in range(max(by_second, default=-1) + 1)
        ),
    )


def quantiles_ms(values_s: Sequence[float], *quantiles: float) -> list[float]:
    """Quantiles in ms; of nothing they are nan."""
    if not values_s:
        return [float("nan")] * len(quantiles)
    return [1000 * float(value) for value in np.quantile(values_s, quantiles)]


HEADER = (
    f"{'streams':>8}{'refused':>8}{'lag p50':>9}{'p95':>7}{'p99':>7}{'first':>7}{'final':>7}{'p95':>7}"
    f"{'cores':>7}{'clients':>8}{'others':>7}{'load':>6}  remarks"
)


def line_of(result: Result) -> str:
    """A stage as a line of the table."""
    remarks = [
        f"{number} {what}"
        for number, what in (
            (result.unfinished, "without a result"),
            (result.differing, "with other words"),
            (result.late_chunks, "chunks that a client sent late"),
        )
        if number
    ]
    return (
        f"{result.streams:8d}{result.refused:8d}{result.p50_ms:9.0f}{result.p95_ms:7.0f}{result.p99_ms:7.0f}"
        f"{result.first_p95_ms:7.0f}{result.final_p50_ms:7.0f}{result.final_p95_ms:7.0f}{result.server_cores:7.2f}"
        f"{result.client_cores:8.2f}{result.other_cores:7.2f}{result.load:6.2f}  {', '.join(remarks)}"
    )


def measure(args: argparse.Namespace) -> tuple[list[Result], Result]:
    """The curve without a bound on the load, and the stage with one; prints them as they come."""
    sizes = sorted(map(int, args.streams.split(",")))
    speeches = make_speeches(args.seconds, args.options)
    most = sizes[-1]
    common = ["--max-sessions", str(most), "--log-level", "error", *args.options]
    print(
        f"lags in ms; {args.seconds:g} s a stage; server: transom serve {' '.join(args.options)}\n{HEADER}",
        flush=True,
    )
    curve = []
    with serving([*common, "--max-load", "off"]) as server:
        for num_streams in sizes:
            curve.append(run_stage(server, speeches, num_streams, RAMP_S / num_streams, args.client_processes))
            print(line_of(curve[-1]), flush=True)
    speeches = make_speeches(args.seconds + SLOW_ARRIVAL_S * most, args.options)
    print(f"with its usual bound on the load, a client every {SLOW_ARRIVAL_S:g} s:", flush=True)
    with serving(common) as server:
        bounded = run_stage(server, speeches, most, SLOW_ARRIVAL_S, args.client_processes)
    print(line_of(bounded), flush=True)
    return curve, bounded


def plot(curve: Sequence[Result], file: Path) -> None:
    """Cost and lag against the number of streams, and lag over the time of each stage."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, (cost, by_streams, by_time) = pyplot.subplots(1, 3, figsize=(15, 4), layout="constrained")
    sizes = [result.streams for result in curve]
    costs_ms = [1000 * result.server_cores / result.streams for result in curve]
    cost.plot(sizes, costs_ms, marker="o")
    cost.set(xlabel="streams", ylabel="processor time a second of a stream, ms", xticks=sizes, ylim=(0, None))
    for name in ("p50_ms", "p95_ms", "p99_ms"):
        by_streams.plot(
            sizes, [getattr(result, name) for result in curve], marker="o", label=name.removesuffix("_ms")
        )
    by_streams.set(xlabel="streams", ylabel="lag beyond the model's delay, ms", yscale="log", xticks=sizes)
    for result in curve:
        by_time.plot(result.second_p95_ms, label=str(result.streams))
    by_time.set(xlabel="seconds since the first client came", ylabel="p95 of each second, ms", yscale="log")
    for axes, title in ((by_streams, "of lags"), (by_time, "streams")):
        axes.axhline(MAX_P95_MS, color="grey", linestyle=":")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:.0f}")
        axes.yaxis.set_minor_locator(ticker.NullLocator())
        axes.legend(frameon=False, title=title, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(file, dpi=120)


def main() -> int:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", default="4,8,16,24,32,48,64", metavar="N,N,...")
    parser.add_argument("--seconds", type=float, default=30.0, help="of audio a client and stage (default: 30)")
    parser.add_argument("--client-processes", type=int, default=1, metavar="N")
    parser.add_argument("--plot", type=Path, metavar="PNG")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("options", nargs="*", metavar="SERVE_OPTION")
    args = parser.parse_args()
    curve, bounded = measure(args)
    held = [result.streams for result in curve if result.is_held]
    print(f"held with a lag of less than {MAX_P95_MS:g} ms for 95 %: {max(held, default=0)} streams")
    if args.json:
        content = {"options": args.options, "curve": [asdict(one) for one in curve], "bounded": asdict(bounded)}
        args.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if args.plot:
        plot(curve, args.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
