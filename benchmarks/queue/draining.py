"""Jobs that say nothing, through a real worker process: claim, send, run, end, report."""

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.queue import bare
from benchmarks.queue.figures import Figure
from benchmarks.queue.load import Run, ask
from benchmarks.queue.server import CpuMeter, serving
from benchmarks.queue.site import body, job, lay_out

CREDIT = 64
BULK = 1_000
LOAD_S = 4.0
"""The worker takes so long to load, so that all jobs wait when it begins."""


def measure(place: Path, jobs: int) -> Iterator[Figure]:
    """Jobs a second from the first start to the last end, as the store tells it."""
    floor = bare.measure(place / "bare", jobs)
    name = f"a bare prototype drained, {jobs:,} jobs"
    yield Figure(
        name=name, value=floor.rate, unit="/s", note=f"{bare.RATE:,} where the goal is from"
    )
    yield Figure(name="… its CPU a job", value=floor.cpu_us, unit="µs", note=f"{bare.CPU_US} there")
    settings = {
        **lay_out(place),
        "worker.rows": str(CREDIT),
        "worker.prefetch": str(CREDIT),
        "worker.scripted": json.dumps({"load_s": LOAD_S}),
    }
    with serving(place, settings, os.environ) as server:
        run = Run(
            port=server.port,
            path="/v1/jobs/bulk",
            body=body({"jobs": [job("[[tokens=0]]")] * BULK}),
            connections=1,
            count=jobs // BULK,
        )
        ask(run)
        uri = f"file:{server.database}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as store:
            _wait_for(store, "SELECT last FROM feed", 1)
            parent, worker = CpuMeter(server.process.pid), CpuMeter(server.worker().pid)
            _wait_for(store, "SELECT last FROM feed", jobs)
            parent_s, worker_s = parent.spent_s(), worker.spent_s()
            query = "SELECT min(started_at), max(finalized_at) FROM job"
            began, ended = store.execute(query).fetchone()
    rate = 1e6 * jobs / (ended - began)
    at = f"{jobs:,} jobs, credit {CREDIT}"
    yield Figure(name=f"drained, {at}", value=rate, unit="/s", goal=25_000, better="more")
    yield Figure(name="… parent's CPU a job", value=1e6 * parent_s / jobs, unit="µs", goal=32)
    yield Figure(name="… worker's CPU a job", value=1e6 * worker_s / jobs, unit="µs")


def _wait_for(store: sqlite3.Connection, query: str, count: int) -> None:
    """Every ending is a report with its number. To look costs next to nothing: to count the jobs
    that have ended took a third of a core from what is measured."""
    while store.execute(query).fetchone()[0] < count:
        time.sleep(0.01)
