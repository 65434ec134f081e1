"""A cancel ends a job in whatever state it is, once, and says so."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from tests.durable.conftest import NewPlace
from tests.durable.disturbing import assert_undisturbed, scripted
from tests.durable.place import Place, assert_counted_once
from tests.durable.streams import JobStream, follow
from tests.waiting import wait_until

ENDLESS = "[[tokens=100000]]"
HASTY = {"server.cancel_wait_s": 0.1}
"""For cancels that are not answered in time anyhow."""


def in_an_hour() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).isoformat()


def rows_taken(place: Place, stack: ExitStack) -> None:
    """Fill every row, until the test ends."""
    for job in [place.submit(ENDLESS) for _ in range(4)]:
        stack.callback(place.cancel, job)
        place.running(job)


def test_a_running_job_ends_cancelled_within_the_answer(place: Place) -> None:
    job = place.submit(ENDLESS)
    stream = JobStream(place, job)
    place.running(job, 5)
    told = place.cancel(job)
    assert (told["state"], told["stop_reason"], told["failure"]) == ("cancelled", "cancel", None)
    assert stream.finished().ending["state"] == "cancelled"
    assert place.outcomes(job) == ["stopped"]
    assert told["usage"]["completion_tokens"] == len(place.tokens(job)) >= 5
    assert "".join(item["text"] for item in told["output"][0]["items"]) == stream.text
    assert_counted_once(place, [job])


def test_a_cancel_twice_or_ten_times_at_once_is_answered_with_the_same_object(place: Place) -> None:
    job = place.submit(ENDLESS)
    place.running(job)
    with ThreadPoolExecutor(10) as pool:
        told = list(pool.map(place.cancel, [job] * 10))
    assert told == [place.cancel(job)] * 10
    assert told[0]["state"] == "cancelled"
    assert_counted_once(place, [job])


def test_a_cancel_of_a_finished_job_changes_nothing(place: Place) -> None:
    job = place.submit("[[say=done]]")
    place.ended(job)
    before = place.job(job)
    assert place.cancel(job) == before
    assert before["state"] == "completed"
    assert_counted_once(place, [job])


def test_a_waiting_job_is_cancelled_at_once(place: Place) -> None:
    with ExitStack() as stack:
        rows_taken(place, stack)
        jobs = [place.submit("[[tokens=1]]") for _ in range(3)]
        assert [place.job(job)["queue"]["position"] for job in jobs] == [0, 1, 2]
        assert place.cancel(jobs[1])["state"] == "cancelled"
        assert [place.job(job)["queue"] for job in jobs] == [{"position": 0}, None, {"position": 1}]
    assert [place.ended(job)["state"] for job in jobs] == ["completed", "cancelled", "completed"]
    assert place.outcomes(jobs[1]) == []
    assert_counted_once(place, jobs)


def test_a_scheduled_job_is_cancelled_at_once(place: Place) -> None:
    job = place.submit("[[tokens=1]]", scheduled_at=in_an_hour())
    assert place.job(job)["state"] == "scheduled"
    told = place.cancel(job)
    assert (told["state"], told["attempt"]) == ("cancelled", 0)
    assert place.cancel(job) == told
    assert_counted_once(place, [job])


def test_a_job_that_waits_for_its_next_attempt_is_cancelled_at_once(place: Place) -> None:
    job = place.submit("[[tokens=40]] [[fail_at=5]]", max_attempts=9)
    wait_until(lambda: place.store.job(job)["state"] == "retryable", 10)
    told = place.cancel(job)
    assert (told["state"], told["failures"]) == ("cancelled", len(place.attempts(job)))
    assert told["usage"]["completion_tokens"] == 5
    assert_counted_once(place, [job])


def test_a_job_that_is_cancelled_before_it_could_start_ends_so(place: Place) -> None:
    """The claim rides in the insert's commit, so the cancel meets it on its way."""
    jobs = [place.submit("[[tokens=30]] [[prepare_s=0.2]]") for _ in range(2)]
    assert {place.cancel(job)["state"] for job in jobs} == {"cancelled"}
    assert all(place.tokens(job) == [] for job in jobs)
    assert_counted_once(place, jobs)


@pytest.mark.timeout(120)
def test_a_hung_worker_is_replaced_and_its_other_rows_go_on(new_place: NewPlace) -> None:
    load = scripted(*[f"{n} [[tokens=60]]" for n in range(3)])
    place = new_place({"step_s": 0.01}, HASTY)
    place.start(
        "set app.services.cancellation:RESEND_S 0.2", "set app.services.cancellation:REPLACE_S 0.8"
    )
    hung = place.submit("[[tokens=100]] [[hang_at=20]]")
    place.running(hung)
    streams = follow(place, load.submit(place))
    place.running(hung, 20)
    worker = place.worker()
    assert place.cancel(hung)["state"] in {"running", "cancelled"}
    assert place.ended(hung)["state"] == "cancelled"
    assert_undisturbed(place, load, [stream.finished() for stream in streams])
    for stream in streams:
        job = place.job(stream.job)
        assert (job["failures"], job["losses"]) == (0, 0)
        assert place.outcomes(stream.job) == ["lost", "finished"]
    assert place.worker().pid != worker.pid
    assert_counted_once(place, [hung])


@pytest.mark.timeout(120)
def test_a_cancel_that_a_hung_worker_owes_an_answer_is_escalated_by_the_next_parent_too(
    new_place: NewPlace,
) -> None:
    place = new_place({"step_s": 0.01}, HASTY)
    place.start()
    hung = place.submit("[[tokens=100]] [[hang_at=5]]")
    place.running(hung, 5)
    worker = place.worker()
    assert place.cancel(hung)["state"] == "running"
    place.restart("set app.services.cancellation:REPLACE_S 0.8")
    assert place.ended(hung)["state"] == "cancelled"
    wait_until(lambda: worker not in place.site.workers(), 10, "the death of the hung worker")
    assert_counted_once(place, [hung])
