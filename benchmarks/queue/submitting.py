"""Durable submissions over HTTP: one at a time by many clients, and in bulk.

The model's only row is taken, so that what is submitted waits: what is measured is admission.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.queue.figures import Figure, percentile
from benchmarks.queue.load import Load, Run, ask
from benchmarks.queue.server import BenchFailed, CpuMeter, Running, serving
from benchmarks.queue.site import TEXT, body, job, lay_out

BULK = 100


def measure(place: Path, seconds: float) -> Iterator[Figure]:
    """Submissions a second at 1, 16 and 128 clients, then in bulk; the bytes each wrote."""
    settings = {
        **lay_out(place),
        "worker.rows": "1",
        "worker.prefetch": "0",
        "worker.scripted": '{"step_s":0.5}',
    }
    with serving(place, settings, os.environ) as server:
        take_the_row(server)
        one = body(job())
        for clients in (1, 16, 128):
            written = _written(server)
            meter = CpuMeter(server.process.pid)
            run = Run(
                port=server.port, path="/v1/jobs", body=one, connections=clients, seconds=seconds
            )
            load = _all_taken(ask(run))
            yield from _singly(clients, load, meter.spent_s(), _written(server) - written)
        yield from _in_bulk(server, seconds)


def take_the_row(server: Running) -> None:
    """Let a job run that does not end."""
    run = Run(
        port=server.port,
        path="/v1/jobs",
        body=body(job(f"[[tokens=8000]] {TEXT}")),
        connections=1,
        count=1,
    )
    _all_taken(ask(run))
    time.sleep(2.0)


def _singly(clients: int, load: Load, cpu_s: float, written: int) -> Iterator[Figure]:
    count = len(load.latencies)
    rate = count / (load.ended - load.began)
    at = f"{clients} client{'s' if clients > 1 else ''}"
    p50, p99 = (1e3 * percentile(load.latencies, share) for share in (0.5, 0.99))
    goal = clients == 16
    yield Figure(
        name=f"durable submissions, {at}",
        value=rate,
        unit="/s",
        goal=5_000 if goal else None,
        better="more",
    )
    yield Figure(name=f"… p50, {at}", value=p50, unit="ms", goal=3.2 if goal else None)
    yield Figure(name=f"… p99, {at}", value=p99, unit="ms")
    cpu_us = 1e6 * cpu_s / count
    yield Figure(name=f"… CPU a job, {at}", value=cpu_us, unit="µs", goal=175 if goal else None)
    yield Figure(name=f"… bytes written a job, {at}", value=written / count, unit="B")


def _in_bulk(server: Running, seconds: float) -> Iterator[Figure]:
    many = body({"jobs": [job()] * BULK})
    for clients in (1, 4):
        meter = CpuMeter(server.process.pid)
        run = Run(
            port=server.port,
            path="/v1/jobs/bulk",
            body=many,
            connections=clients,
            seconds=seconds,
        )
        load = _all_taken(ask(run))
        count = BULK * len(load.latencies)
        at = f"{BULK} a request, {clients} client{'s' if clients > 1 else ''}"
        yield Figure(
            name=f"in bulk, {at}",
            value=count / (load.ended - load.began),
            unit="/s",
            goal=45_000 if clients == 4 else None,
            better="more",
        )
        yield Figure(name=f"… CPU a job, {at}", value=1e6 * meter.spent_s() / count, unit="µs")


def _all_taken(load: Load) -> Load:
    if load.refused or not load.latencies:
        raise BenchFailed(f"{load.refused} of {len(load.latencies)} requests were refused")
    return load


def _written(server: Running) -> int:
    """Bytes that the parent has had written to disks, where Linux counts them."""
    try:
        text = Path(f"/proc/{server.process.pid}/io").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("write_b"))
