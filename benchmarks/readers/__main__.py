"""Eight streams, with and without 50 readers of the feed and 20 webhook endpoints beside them.

Rounds of both kinds alternate on one server, whose scripted engine takes a fixed time for a step,
while short jobs end at a fixed rate: each ending is a report for everybody. Of the endpoints some
never answer. What is compared within each pair of rounds is the slowest stream, and the slowest gap
between two events (the 99th percentile over all streams).
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.queue.server import CpuMeter, Running, serving
from benchmarks.queue.site import MODEL, lay_out
from benchmarks.readers.asking import ask, stream
from benchmarks.readers.audience import Audience, listening

GOAL: Final = 1.05
STREAMS: Final = 8


class Options(argparse.Namespace):
    """What was asked for."""

    rounds: int
    tokens: int
    step_s: float
    rate: float
    readers: int
    endpoints: int
    hanging: int
    json: Path | None


class Round(msgspec.Struct, frozen=True):
    """Seconds of the slowest stream, the 99th percentile of gaps, jobs that ended beside them, and
    the parent's processor time."""

    slowest_s: float
    gap_p99_ms: float
    ended: int
    parent_cpu_s: float


class Pair(msgspec.Struct, frozen=True):
    """Two rounds, one after the other; what the audience was told in the second."""

    alone: Round
    beside: Round
    read: int
    taken: int


def main() -> int:
    """Measure and print."""
    options = _options()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        settings = {
            **lay_out(place),
            "worker.scripted": msgspec.json.encode({"step_s": options.step_s}).decode(),
            "worker.rows": str(2 * STREAMS),
            "webhooks.allowed_networks": "loopback",
        }
        environ = {k: v for k, v in os.environ.items() if not k.startswith("MLXQ_")}
        with serving(place, settings, environ) as server:
            asyncio.run(_round(server, options))  # warms up
            pairs = [_pair(server, options, number) for number in range(options.rounds)]
            rss_mb = server.rss_mb()
    _print(pairs, rss_mb)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(pairs)))
    return 0


def _pair(server: Running, options: Options, number: int) -> Pair:
    """The two kinds in turn begin."""
    if number % 2:
        beside, read, taken = _beside(server, options)
        alone = asyncio.run(_round(server, options))
    else:
        alone = asyncio.run(_round(server, options))
        beside, read, taken = _beside(server, options)
    pair = Pair(alone, beside, read, taken)
    print(_line(str(number + 1), pair), flush=True)
    return pair


def _beside(server: Running, options: Options) -> tuple[Round, int, int]:
    audience = Audience(server.port, options.readers, options.endpoints, options.hanging)
    with listening(audience) as there:
        measured = asyncio.run(_round(server, options))
        told = there.told()
    return measured, told.read, told.taken


async def _round(server: Running, options: Options) -> Round:
    meter = CpuMeter(server.process.pid)
    ending = asyncio.ensure_future(_end_jobs(server.port, options.rate))
    streams = await asyncio.gather(
        *(
            stream(server.port, _chat(f"stream {n} [[tokens={options.tokens}]]"))
            for n in range(STREAMS)
        )
    )
    ending.cancel()
    ended = await ending
    gaps = [later - earlier for came in streams for earlier, later in pairwise(came)]
    return Round(
        slowest_s=max(came[-1] - came[0] for came in streams),
        gap_p99_ms=1000 * _p99(gaps),
        ended=ended,
        parent_cpu_s=meter.spent_s(),
    )


async def _end_jobs(port: int, rate: float) -> int:
    """Submit short durable jobs at this rate until told to end; how many."""
    submitted = 0
    try:
        while True:
            await asyncio.sleep(1 / rate)
            asked = _chat("short [[tokens=1]]")
            asked.pop("model")
            job = {"kind": "chat", "model": MODEL, "body": asked}
            await ask(port, "POST", "/v1/jobs", job)
            submitted += 1
    except asyncio.CancelledError:
        return submitted


def _chat(text: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": MODEL, "messages": messages, "max_tokens": 4_000}


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


def _line(name: str, pair: Pair) -> str:
    alone, beside = pair.alone, pair.beside
    return (
        f"{name:>6}  stream {alone.slowest_s:7.3f} s -> {beside.slowest_s:7.3f} s"
        f" ({beside.slowest_s / alone.slowest_s:.3f})"
        f"   gap p99 {alone.gap_p99_ms:6.1f} -> {beside.gap_p99_ms:6.1f} ms"
        f"   parent {alone.parent_cpu_s:5.2f} -> {beside.parent_cpu_s:5.2f} s"
        f"   ended {beside.ended}, read {pair.read}, taken {pair.taken}"
    )


def _print(pairs: Sequence[Pair], rss_mb: float) -> None:
    ratios = sorted(pair.beside.slowest_s / pair.alone.slowest_s for pair in pairs)
    middle = statistics.median(ratios)
    verdict = "met" if middle <= GOAL else "missed"
    print(
        f"slowest stream beside the audience / alone: {middle:.3f} in the middle"
        f" ({ratios[0]:.3f} to {ratios[-1]:.3f}, {len(ratios)} pairs); goal {GOAL}: {verdict}"
    )
    print(f"the parent's memory at the end: {rss_mb:.0f} MB")


def _options() -> Options:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="pairs of rounds")
    parser.add_argument("--tokens", type=int, default=500, help="of each stream")
    parser.add_argument("--step-s", type=float, default=0.02, help="of the scripted engine")
    parser.add_argument("--rate", type=float, default=5.0, help="jobs that end in a second")
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--endpoints", type=int, default=20)
    parser.add_argument("--hanging", type=int, default=5, help="endpoints that never answer")
    parser.add_argument("--json", type=Path, help="where the figures go")
    return parser.parse_args(namespace=Options())


if __name__ == "__main__":
    sys.exit(main())
