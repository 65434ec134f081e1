"""The same on others' queues: tasks that do nothing, each durable before it is acknowledged.

Huey always, on SQLite as safe as ours (`synchronous = FULL`). SAQ and Procrastinate need a server
of their own, Redis with `appendfsync always` and PostgreSQL: they are left out where that is
missing, and the table says so.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.queue.figures import Figure
from benchmarks.queue.server import BenchFailed

TASKS = 5_000
WORKERS = 4
PATIENCE_S = 60.0
_SERVERS = {"SAQ (Redis)": "redis-server", "Procrastinate (PostgreSQL)": "postgres"}


def measure(place: Path, tasks: int = TASKS) -> Iterator[Figure]:
    """Enqueued and drained, tasks a second."""
    place.mkdir(parents=True, exist_ok=True)
    enqueued_s, drained_s = _huey(place / "huey.db", tasks)
    at = f"{tasks:,} tasks"
    yield Figure(name="Huey: enqueued, one producer", value=tasks / enqueued_s, unit="/s", note=at)
    note = f"{at}, {WORKERS} threads"
    yield Figure(name="Huey: drained", value=tasks / drained_s, unit="/s", note=note)


def missing() -> list[str]:
    """Peers that cannot be measured here, and why."""
    return [
        f"{name}: no {server} here"
        for name, server in _SERVERS.items()
        if shutil.which(server) is None
    ] + [f"{name}: not measured yet" for name, server in _SERVERS.items() if shutil.which(server)]


def _wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        if time.monotonic() > deadline:
            raise BenchFailed(f"Huey did nothing for {PATIENCE_S:.0f} s")
        time.sleep(0.002)


def _huey(path: Path, tasks: int) -> tuple[float, float]:
    from benchmarks.queue import huey_tasks

    queue = huey_tasks.queue(path)
    began = time.monotonic()
    for _ in range(tasks):
        queue.enqueue(huey_tasks.nothing.s())
    enqueued_s = time.monotonic() - began
    command = [sys.executable, "-m", "benchmarks.queue.huey_consumer", str(path), str(WORKERS)]
    consumer = subprocess.Popen(command)
    try:
        _wait(lambda: queue.pending_count() < tasks)
        began = time.monotonic()
        _wait(lambda: not queue.pending_count())
        return enqueued_s, time.monotonic() - began
    finally:
        consumer.kill()
        consumer.wait()
