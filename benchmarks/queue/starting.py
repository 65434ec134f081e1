"""From a client's request to the worker's first sight of the job, and from a cancel to its end."""

import http.client
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.queue.figures import Figure, percentile
from benchmarks.queue.load import Run, ask
from benchmarks.queue.server import BenchFailed, Running, serving
from benchmarks.queue.site import body, job, lay_out

RATE = 100.0
CONNECTIONS = 8
HOOK = Path(__file__).parent / "hook"


def measure(place: Path, count: int, fsync_p50_ms: float, fsync_p99_ms: float) -> Iterator[Figure]:
    """Starts at 100 jobs a second, every one on a free row; then cancels of running jobs."""
    settings = {**lay_out(place), "worker.rows": "64", "worker.scripted": '{"step_s":0.005}'}
    stamps = place / "stamps"
    path = os.pathsep.join(filter(None, [str(HOOK), os.environ.get("PYTHONPATH", "")]))
    environ = {**os.environ, "PYTHONPATH": path, "BENCH_STAMPS": str(stamps)}
    with serving(place, settings, environ) as server:
        _warm_up(server)
        starts = _starts(server, stamps, count)
        cancels = [_cancel(server) for _ in range(count // 5)]
    p50, p99 = (1e3 * percentile(starts, share) for share in (0.5, 0.99))
    at = f"{RATE:.0f}/s"
    yield Figure(
        name=f"enqueue → start over HTTP, {at}, p50", value=p50, unit="ms", goal=1.2 + fsync_p50_ms
    )
    yield Figure(name="… p99", value=p99, unit="ms", goal=4 + 2 * fsync_p99_ms)
    for name, share in (("cancel → report, p50", 0.5), ("… p99", 0.99)):
        value = 1e3 * percentile(cancels, share)
        yield Figure(name=name, value=value, unit="ms", note="one step is 5 ms")


def _warm_up(server: Running) -> None:
    ask(Run(port=server.port, path="/v1/jobs", body=_short(), connections=1, count=20))
    time.sleep(2.0)


def _short() -> str:
    return body(job("[[tokens=1]]"))


def _starts(server: Running, stamps: Path, count: int) -> list[float]:
    run = Run(
        port=server.port,
        path="/v1/jobs",
        body=_short(),
        connections=CONNECTIONS,
        count=count,
        rate=RATE,
    )
    load = ask(run)
    seen = dict(line.split() for line in stamps.read_text().splitlines())
    jobs = [msgspec.json.decode(text)["id"] for text in load.bodies]
    if len(jobs) != count or any(job not in seen for job in jobs):
        raise BenchFailed("not every job was seen to start")
    return [float(seen[job]) - sent for job, sent in zip(jobs, load.sent, strict=True)]


def _cancel(server: Running) -> float:
    """Until the answer that has the job ended, whose report was committed with its end."""
    client = http.client.HTTPConnection("127.0.0.1", server.port)
    made = _post(client, "/v1/jobs", body(job("[[tokens=4000]]")))
    while _get(client, f"/v1/jobs/{made['id']}")["events"] < 8:
        time.sleep(0.005)
    began = time.monotonic()
    ended = _post(client, f"/v1/jobs/{made['id']}/cancel", "")
    spent_s = time.monotonic() - began
    client.close()
    if ended["state"] != "cancelled":
        raise BenchFailed(f"the job is {ended['state']}")
    return spent_s


def _post(client: http.client.HTTPConnection, path: str, text: str) -> dict[str, Any]:
    client.request("POST", path, text or None, {"content-type": "application/json"})
    return msgspec.json.decode(client.getresponse().read())


def _get(client: http.client.HTTPConnection, path: str) -> dict[str, Any]:
    client.request("GET", path)
    return msgspec.json.decode(client.getresponse().read())
