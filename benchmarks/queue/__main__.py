"""`python -m benchmarks.queue`: measure the queue, in one run. See benchmarks/README.md."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.queue import (
    claiming,
    draining,
    peers,
    resting,
    starting,
    streaming,
    submitting,
)
from benchmarks.queue.figures import Figure, Results, percentile, table
from benchmarks.queue.server import BenchFailed
from benchmarks.serving.machine import this_machine

README: Final = Path(__file__).parents[1] / "README.md"
BEGIN: Final = "<!-- queue: written by the runner -->"
END: Final = "<!-- end of queue -->"

SYNCS: Final = 300
BLOCK: Final = bytes(4_096)

PROBE_TURNS: Final = 500_000


class Options(argparse.Namespace):
    """The command line."""

    only: list[str]
    seconds: float
    jobs: int
    json: Path | None
    write_table: bool


def main() -> int:
    """Measure, print, and write where asked."""
    options = _options()
    figures: list[Figure] = []
    try:
        with tempfile.TemporaryDirectory(prefix="mlxq-bench-") as name:
            for figure in _measure_all(options, Path(name)):
                _say(f"{figure.name}: {figure.value:.4g} {figure.unit}")
                figures.append(figure)
    except (BenchFailed, subprocess.SubprocessError) as error:
        _say(f"the measurement failed: {error}")
        return 1
    results = Results(msgspec.to_builtins(this_machine()), figures)
    lines = [*table(figures), "", *(f"- {line}" for line in peers.missing())]
    print("\n".join(lines))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    if options.write_table:
        _write_table(lines)
    return 0


def _measure_all(options: Options, place: Path) -> Iterator[Figure]:
    syncs = _syncs(place)
    p50, p99 = (1e3 * percentile(syncs, share) for share in (0.5, 0.99))
    yield Figure(name="fdatasync of 4 KiB, p50", value=p50, unit="ms")
    yield Figure(name="… p99", value=p99, unit="ms")
    parts: dict[str, Callable[[Path], Iterator[Figure]]] = {
        "submitting": lambda at: submitting.measure(at, options.seconds),
        "draining": lambda at: draining.measure(at, options.jobs),
        "starting": lambda at: starting.measure(at, 500, p50, p99),
        "claiming": claiming.measure,
        "resting": lambda at: resting.measure(at, 20.0),
        "streaming": lambda at: streaming.measure(at, options.seconds),
        "peers": peers.measure,
    }
    probes: list[float] = []
    for name, measure in parts.items():
        if name in options.only or not options.only:
            probes.append(_probe_s())
            yield from measure(place / name)
    yield Figure(name="a fixed loop before each part, fastest", value=1e3 * min(probes), unit="ms")
    yield Figure(name="… slowest", value=1e3 * max(probes), unit="ms")


def _probe_s() -> float:
    """How long a fixed loop takes: machines of this kind have a fast and a slow phase."""
    began = time.perf_counter()
    total = 0
    for n in range(PROBE_TURNS):
        total += n * n % 7
    return time.perf_counter() - began


def _syncs(place: Path) -> list[float]:
    """Seconds that each write and its sync to the disk took."""
    took: list[float] = []
    descriptor = os.open(place / "sync", os.O_CREAT | os.O_WRONLY)
    try:
        for _ in range(SYNCS):
            began = time.perf_counter()
            os.write(descriptor, BLOCK)
            getattr(os, "fdatasync", os.fsync)(descriptor)
            took.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
    return took


def _write_table(lines: list[str]) -> None:
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text("\n".join([before + BEGIN, "", *lines, "", END + after]))


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue", description=__doc__)
    add = parser.add_argument
    add("--only", nargs="*", default=[], help="parts: submitting draining starting claiming …")
    add("--seconds", type=float, default=4.0, help="how long each load lasts")
    add("--jobs", type=int, default=10_000, help="jobs drained")
    add("--json", type=Path, help="write everything that was measured to this file")
    add("--write-table", action="store_true", help="put the results into benchmarks/README.md")
    return parser.parse_args(namespace=Options())


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
