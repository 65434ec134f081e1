"""A drain brings work to rest, proves it, and costs durable work nothing."""

import random
import signal
from contextlib import ExitStack
from typing import Final

import pytest

from tests.durable.conftest import NewPlace
from tests.durable.disturbing import Load, assert_undisturbed, scripted
from tests.durable.draining import (
    COMMITS,
    assert_proven,
    begun,
    drain,
    drained,
    killed_in_drain,
)
from tests.durable.place import assert_counted_once
from tests.e2e.calls import Call, error_of, finish_of, rest_of
from tests.e2e.store import job_id
from tests.waiting import wait_until

SEED: Final = 1
ENDLESS: Final = "[[tokens=100000]]"


def eight_jobs(tokens: int = 50) -> Load:
    return scripted(*(f"job {n} [[tokens={tokens}]]" for n in range(8)))


@pytest.mark.timeout(120)
def test_checkpoint_stop_and_start_under_eight_streams(new_place: NewPlace) -> None:
    place, load = new_place({"step_s": 0.01}), eight_jobs()
    place.start()
    streams = begun(place, load)
    drain(place, "checkpoint")
    view = drained(place)
    assert_proven(place, view)
    assert (view["in_flight"], view["given_back"]) == (8, 8)
    assert {place.job(stream.job)["state"] for stream in streams} == {"available"}
    waiting = place.submit("[[say=later]]")
    place.stop()
    assert not place.site.workers()
    place.start()
    assert_undisturbed(place, load, [stream.finished() for stream in streams])
    for stream in streams:
        job = place.job(stream.job)
        assert (job["preemptions"], job["losses"], job["failures"]) == (0, 0, 0)
        assert place.outcomes(stream.job) == ["preempted", "finished"]
    assert place.ended(waiting)["state"] == "completed"


@pytest.mark.timeout(120)
def test_sigterm_is_a_drain_that_checkpoints_durable_work(new_place: NewPlace) -> None:
    place, load = new_place({"step_s": 0.01}), eight_jobs()
    place.start()
    streams = begun(place, load)
    place.stop()
    (row,) = place.store.rows("SELECT * FROM drain")
    assert (row["state"], row["in_flight"], row["given_back"]) == ("completed", 8, 8)
    assert len(place.store.reports(row["id"])) == 1
    place.start()
    assert_undisturbed(place, load, [stream.finished() for stream in streams])


@pytest.mark.timeout(120)
def test_sigterm_joins_a_running_drain_and_waits_no_longer_than_its_own_grace(
    new_place: NewPlace,
) -> None:
    place = new_place({"step_s": 0.01}, {"server.shutdown_grace_s": 0.3})
    server = place.start()
    durable = place.submit(ENDLESS)
    place.running(durable)
    with Call(server, ENDLESS) as attached:
        attached.read_text()
        asked = drain(place, "finish", timeout_s=3000)
        place.server.tell(signal.SIGTERM)
        error = error_of(list(attached.events()))
    assert error is not None
    assert error["code"] == "stream_interrupted"
    assert server.ended(15) == 0
    (row,) = place.store.rows("SELECT * FROM drain")
    assert (row["id"], row["state"], row["mode"]) == (asked["id"], "completed", "finish")
    assert (row["in_flight"], row["given_back"], row["cancelled"]) == (2, 1, 1)
    assert place.store.job(durable)["state"] == "available"
    assert_counted_once(place, [job_id(attached.answer_id)])


@pytest.mark.timeout(120)
def test_a_drain_of_each_mode_settles_durable_and_attached_work(new_place: NewPlace) -> None:
    place = new_place({"step_s": 0.01}, {"worker.rows": 3, "worker.prefetch": 0})
    server = place.start()
    place.warm()
    for mode, expected in {
        "finish": {"durable": "completed", "attached": "stop", "waiting": "stop"},
        "checkpoint": {"durable": "available", "attached": "stop", "waiting": "draining"},
        "cancel": {"durable": "cancelled", "attached": "error", "waiting": "draining"},
    }.items():
        with ExitStack() as stack:
            durable = [place.submit("[[tokens=300]]") for _ in range(2)]
            for job in durable:
                place.running(job)
            attached = stack.enter_context(Call(server, "[[tokens=300]]"))
            attached.read_text()
            waiting = stack.enter_context(Call(server, "[[tokens=5]]"))
            wait_until(lambda: server.metric("jobs_waiting") == 1)
            drain(place, mode)
            refused = server.chat("no")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
            view = drained(place)
            assert_proven(place, view)
            assert view["in_flight"] == 4
            assert {place.job(job)["state"] for job in durable} == {expected["durable"]}
            (events,) = rest_of([attached])
            assert (finish_of(events) or "error") == expected["attached"]
            if expected["waiting"] == "draining":
                assert waiting.status == 503
                assert waiting.body()["error"]["code"] == "draining"
            else:
                assert finish_of(list(waiting.events())) == "stop"
        assert place.post("/admin/v1/resume").status_code == 200
        for job in durable:
            place.ended(job)
        assert_counted_once(place, durable)


@pytest.mark.timeout(120)
def test_what_does_not_come_to_rest_in_time_is_given_back_or_cancelled(
    new_place: NewPlace,
) -> None:
    place = new_place({"step_s": 0.01})
    server = place.start()
    durable = place.submit(ENDLESS)
    place.running(durable)
    with Call(server, ENDLESS) as attached:
        attached.read_text()
        drain(place, "finish", timeout_s=0.3)
        view = drained(place)
        error = error_of(list(attached.events()))
    assert_proven(place, view)
    assert (view["given_back"], view["cancelled"]) == (1, 1)
    assert error is not None
    assert error["code"] == "stream_interrupted"
    assert place.job(durable)["state"] == "available"
    place.post("/admin/v1/resume")
    place.running(durable, len(place.tokens(durable)) + 5)
    assert place.cancel(durable)["state"] == "cancelled"


@pytest.mark.timeout(180)
def test_a_parent_killed_at_any_moment_of_a_drain(new_place: NewPlace) -> None:
    place, load = new_place({"step_s": 0.01}), eight_jobs(60)
    place.start()
    moments = random.Random(SEED).sample(range(COMMITS), 2)
    died = [killed_in_drain(place, load, moment) for moment in moments]
    assert any(died)
