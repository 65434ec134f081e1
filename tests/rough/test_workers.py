"""Workers that hang, wake too late, or say far too much."""

import itertools
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import pytest
import zmq

from shared.codec import encode
from shared.ids import GenerationId
from shared.limits import MESSAGE_BYTES_MAX
from shared.messages import Heartbeat
from tests.durable.place import Place, assert_counted_once
from tests.durable.streams import follow
from tests.e2e.store import failure_code
from tests.rough.conftest import Begin
from tests.rough.traces import nothing_stays
from tests.waiting import wait_until

SLOW: Final = {"step_s": 0.02}
LONG: Final = "[[tokens=100]]"
ANSWERS_S: Final = 0.5
"""Within which the server answers whatever a worker does to it, on a busy machine."""


def test_a_template_that_hangs_fails_its_job_and_costs_nobody_else(begin: Begin) -> None:
    place = begin(
        script=SLOW, settings={"worker.prepare_timeout_s": 0.5, "worker.prepare_threads": 2}
    )
    with nothing_stays(place.server):
        peace = place.submit(LONG)
        place.ended(peace)
        neighbour = place.submit(LONG)
        place.running(neighbour)
        before = place.worker().pid
        hung = place.submit("[[prepare_s=3600]]")
        row = place.ended(hung)
        assert (row["state"], failure_code(row)) == ("failed", "prepare_timeout")
        assert place.ended(neighbour)["state"] == "completed"
        assert place.tokens(neighbour) == place.tokens(peace)
        wait_until(lambda: before not in _pids(place), 20, "the end of the worker that hangs")
        assert place.ended(place.submit("[[tokens=1]]"))["state"] == "completed"
        assert place.store.job(neighbour)["held_deaths"] == 0
        assert_counted_once(place, [neighbour, hung])


def _pids(place: Place) -> list[int]:
    return [process.pid for process in place.site.workers()]


def test_a_stopped_worker_that_wakes_after_it_was_given_up_changes_nothing(begin: Begin) -> None:
    place = begin(
        "skip app.supervision.process:WorkerProcess.signal 1",
        script=SLOW,
        settings={"worker.heartbeat_timeout_s": 1.0},
    )
    with nothing_stays(place.server):
        peace = place.submit(LONG)
        place.ended(peace)
        job = place.submit(LONG)
        place.running(job, tokens=20)
        worker = place.worker()
        worker.suspend()
        (sleeper,) = place.store.rows("SELECT * FROM generation WHERE state = 'ready'")
        wait_until(
            lambda: place.store.rows("SELECT 1 FROM generation WHERE state = 'lost'"),
            15,
            "the loss of the worker",
        )
        lost = place.store.rows("SELECT * FROM generation WHERE id = ?", sleeper["id"])
        worker.resume()  # the kill did not reach it: it says all it had to say
        assert place.ended(job)["state"] == "completed"
        assert place.tokens(job) == place.tokens(peace)
        assert place.outcomes(job) == ["lost", "finished"]
        assert_counted_once(place, [job])
        (after,) = place.store.rows("SELECT * FROM generation WHERE id = ?", sleeper["id"])
        told = ("last_seq", "completion_tokens", "jobs")
        assert [after[name] for name in told] == [lost[0][name] for name in told]
        assert after["state"] == "gone"


@contextmanager
def connection(place: Place) -> Generator["zmq.Socket[bytes]"]:
    """A connection to the workers' socket that no worker has."""
    (path,) = place.site.runtime_dir.rglob("w.sock")
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDTIMEO, 5_000)
        socket.connect(f"ipc://{path}")
        yield socket


def slowest_answer(place: Place, count: int) -> float:
    """The longest time that one of so many simple requests took."""
    times: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        assert place.server.get("/livez").status_code == 200
        times.append(time.perf_counter() - began)
    return max(times)


def test_a_flood_of_garbage_is_dropped_beside_work_that_goes_on(begin: Begin) -> None:
    place = begin(script=SLOW)
    stranger = GenerationId("gen_00000000000000000000000000000000")
    heartbeat = encode([Heartbeat(stranger, 1, 1, 1, 1, 1)])
    garbage = itertools.cycle([b"", os.urandom(64), os.urandom(65_536), heartbeat])
    with nothing_stays(place.server):
        log_bytes = place.site.log.stat().st_size
        job = place.submit(LONG)
        place.running(job)
        with connection(place) as socket:
            for _, message in zip(range(20_000), garbage, strict=False):
                socket.send(message)
            socket.send(os.urandom(MESSAGE_BYTES_MAX + 1))
            assert slowest_answer(place, 20) < ANSWERS_S
            wait_until(
                lambda: place.server.metric("malformed_messages_total") >= 15_000, 20, "the flood"
            )
        assert place.ended(job)["state"] == "completed"
        assert place.outcomes(job) == ["finished"]
        assert place.site.log.stat().st_size - log_bytes < 65_536


@pytest.mark.parametrize("rows", [32])
def test_a_flood_of_frames_keeps_nobody_else_waiting(begin: Begin, rows: int) -> None:
    place = begin(script={"context_tokens": 100_000}, settings={"worker.rows": rows})
    with nothing_stays(place.server):
        jobs = [place.submit(f"job {n} [[tokens=600]]", n) for n in range(rows)]
        streams = follow(place, jobs[:4])
        for job in jobs:
            place.running(job)
        assert slowest_answer(place, 50) < ANSWERS_S
        for stream in streams:
            stream.finished()
        for job in jobs:
            assert place.ended(job, 60)["state"] == "completed"
            assert len(place.tokens(job)) == 601
        assert_counted_once(place, jobs)
