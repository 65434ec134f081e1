"""What a token costs the parent on its way from the worker to a stream."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.queue.figures import Figure
from benchmarks.queue.load import Run, ask
from benchmarks.queue.server import CpuMeter, Running, serving
from benchmarks.queue.site import MODEL, body, job, lay_out
from benchmarks.queue.watching import Asked, Watch, watching

STEP_S = 0.02
"""Fifty steps a second."""

ATTACHED = {8: 70.0, 32: 28.0, 128: 17.0}
JOURNALED = {8: None, 32: None, 128: 26.0}
LONG = "[[tokens=8000]]"


def measure(place: Path, seconds: float) -> Iterator[Figure]:
    """CPU of the parent per token event with 8, 32 and 128 streams, attached and journaled."""
    settings = {
        **lay_out(place),
        "worker.rows": "128",
        "worker.scripted": f'{{"step_s":{STEP_S}}}',
    }
    for rows, goal in ATTACHED.items():
        yield _figure(f"attached, {rows} rows", _attached(place, settings, rows, seconds), goal)
    for rows, goal in JOURNALED.items():
        yield _figure(f"journaled, {rows} rows", _journaled(place, settings, rows, seconds), goal)


def _figure(what: str, cpu_us: float, goal: float | None) -> Figure:
    return Figure(name=f"CPU a token event, {what}", value=cpu_us, unit="µs", goal=goal)


def _attached(place: Path, settings: dict[str, str], rows: int, seconds: float) -> float:
    messages = [{"role": "user", "content": LONG}]
    asked = body({"model": MODEL, "messages": messages, "stream": True})
    with serving(place, settings, os.environ) as server:
        streams = [Asked("POST", "/v1/chat/completions", asked)] * rows
        return _cpu_us(server, streams, seconds)


def _journaled(place: Path, settings: dict[str, str], rows: int, seconds: float) -> float:
    with serving(place, settings, os.environ) as server:
        many = body({"jobs": [job(LONG)] * rows})
        load = ask(Run(port=server.port, path="/v1/jobs/bulk", body=many, connections=1, count=1))
        ids = msgspec.json.decode(load.bodies[0])["ids"]
        streams = [Asked("GET", f"/v1/jobs/{job_id}/events") for job_id in ids]
        return _cpu_us(server, streams, seconds)


def _cpu_us(server: Running, streams: list[Asked], seconds: float) -> float:
    with watching(Watch(server.port, streams, seconds)) as reader:
        meter = CpuMeter(server.process.pid)
        seen = reader.result()
        return 1e6 * meter.spent_s() / seen.events
