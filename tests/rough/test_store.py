"""A writer that stalls, and a server that has nothing to do."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.durable.disturbing import let_pass
from tests.durable.place import Place, assert_counted_once
from tests.durable.streams import follow, wait_for_events
from tests.rough.conftest import Begin
from tests.rough.traces import nothing_stays
from tests.waiting import wait_until

STALL_S: Final = 5.0
SLOW: Final = {"step_s": 0.02}
LONG: Final = "[[tokens=100]]"
WRITER_MAX: Final = 16
"""Operations that may wait, so that it is full at once."""

CALLERS: Final = 40


@contextmanager
def stalled(place: Place) -> Generator[None]:
    """The disk takes nothing for a while."""
    marker = place.site.data_dir / "stalled"
    marker.touch()
    try:
        yield
    finally:
        marker.unlink()


def test_a_writer_that_stalls_refuses_when_crowded_and_loses_nothing(begin: Begin) -> None:
    settings: dict[str, Any] = {
        "queue.writer_max": WRITER_MAX,
        "worker.heartbeat_timeout_s": 1.0,  # what is left unread is nobody's silence
    }
    place = begin("slow-disk {data}/stalled", script=SLOW, settings=settings)
    with nothing_stays(place.server), ThreadPoolExecutor(CALLERS) as pool:
        peace = place.submit(LONG)
        place.ended(peace)
        job = place.submit(LONG)
        (stream,) = follow(place, [job])
        wait_for_events([stream], 5)
        with stalled(place):
            asked = [
                pool.submit(place.post, "/v1/jobs", place.body("[[tokens=3]]", n))
                for n in range(CALLERS)
            ]
            wait_until(lambda: place.server.metric("store_waiting") >= WRITER_MAX, 20, "a crowd")
            refused = place.post("/v1/jobs", place.body("hello"))
            assert refused.status_code == 503, refused.text
            assert refused.json()["error"]["code"] == "server_overloaded"
            assert int(refused.headers["retry-after"]) >= 1
            shown = len(stream.events)
            let_pass(STALL_S)
            assert place.server.get("/livez").status_code == 200
            assert len(stream.events) == shown
        answers = [future.result() for future in asked]
        taken = [answer.json()["id"] for answer in answers if answer.status_code == 202]
        assert {answer.status_code for answer in answers} <= {202, 503}
        assert taken
        stream.finished()
        for accepted in (job, *taken):
            assert place.ended(accepted)["state"] == "completed"
        assert place.tokens(job) == place.tokens(peace)
        assert place.outcomes(job) == ["finished"]
        assert_counted_once(place, [job, *taken])
        rows = {row["id"] for row in place.store.jobs()}
        assert rows == {place.store.jobs()[0]["id"], peace, job, *taken}


def asked_of_the_store(place: Place) -> tuple[float, float]:
    """How often it was read and written."""
    server = place.server
    return server.metric("store_reads_total"), server.metric("store_commits_total")


@pytest.mark.parametrize("seconds", [3.0, pytest.param(10.0, marks=pytest.mark.torture)])
def test_with_an_idle_worker_the_store_is_left_alone(begin: Begin, seconds: float) -> None:
    place = begin()
    place.warm()
    place.ended(place.submit("[[tokens=5]]"))
    place.server.wait_until_idle()
    let_pass(1.0)
    before = asked_of_the_store(place)
    let_pass(seconds)
    assert asked_of_the_store(place) == before
