"""What the parent costs when nothing is asked of it."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.queue.figures import Figure, middle
from benchmarks.queue.load import Run, ask
from benchmarks.queue.server import CpuMeter, serving
from benchmarks.queue.site import body, job, lay_out

STARTS = 5


def measure(place: Path, seconds: float) -> Iterator[Figure]:
    """Idle processor time with one worker, memory after a thousand jobs, time to the open port."""
    settings = lay_out(place)
    with serving(place, settings, os.environ) as server:
        short = body(job("[[tokens=1]]"))
        ask(Run(port=server.port, path="/v1/jobs", body=short, connections=8, count=1_000))
        time.sleep(5.0)
        meter, began = CpuMeter(server.process.pid), time.monotonic()
        time.sleep(seconds)
        share = 100 * meter.spent_s() / (time.monotonic() - began)
        rss = server.rss_mb()
    yield Figure(name="idle, one worker", value=share, unit="% of a core", goal=0.15)
    yield Figure(name="RSS after 1,000 jobs", value=rss, unit="MB", goal=100)
    started = [_start(place, settings) for _ in range(STARTS)]
    yield Figure(name="exec → open port", value=middle(started), unit="s", goal=1.0)


def _start(place: Path, settings: dict[str, str]) -> float:
    with serving(place, settings, os.environ) as server:
        return server.started_s
