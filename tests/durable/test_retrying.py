"""Attempts that fail, jobs that are due later."""

from datetime import UTC, datetime, timedelta

from tests.durable.conftest import NewPlace
from tests.durable.disturbing import assert_undisturbed, scripted
from tests.durable.place import Place, assert_counted_once
from tests.durable.streams import JobStream, follow
from tests.e2e.store import failure_code
from tests.waiting import wait_until


def test_a_job_whose_attempt_failed_goes_on_from_its_journal(place: Place) -> None:
    """A step that raises costs every row of it; it is ordered by another job."""
    load = scripted("first [[tokens=300]]", "second [[tokens=300]]")
    jobs = [asked.submit(place, max_attempts=3) for asked in load.asked]
    streams = follow(place, jobs)
    for job in jobs:
        place.running(job, 10)
    culprit = place.submit("[[tokens=60]] [[raise_at=3]]")
    assert failure_code(place.ended(culprit)) == "engine_error"
    assert_undisturbed(place, load, [stream.finished() for stream in streams])
    for job in jobs:
        first, second = place.attempts(job)
        assert (first["outcome"], second["outcome"]) == ("failed", "finished")
        assert second["replayed_tokens"] == first["delivered_tokens"] >= 10
        row = place.store.job(job)
        assert (row["failures"], row["losses"], row["state"]) == (1, 0, "completed")
    assert_counted_once(place, [culprit])


def test_a_job_that_may_be_tried_three_times_fails_with_its_third_failure(place: Place) -> None:
    job = place.submit("[[tokens=40]] [[fail_at=7]]", max_attempts=3)
    stream = JobStream(place, job).finished()
    assert stream.ending["failure"]["code"] == "scripted_failure"
    row = place.store.job(job)
    assert (row["state"], row["failures"], row["completion_tokens"]) == ("failed", 3, 7)
    delivered = [(row["replayed_tokens"], row["delivered_tokens"]) for row in place.attempts(job)]
    assert delivered == [(0, 7), (7, 0), (7, 0)]
    assert place.outcomes(job) == ["failed"] * 3
    assert_counted_once(place, [job])


def test_a_job_that_may_be_tried_once_fails_with_its_first_failure(place: Place) -> None:
    job = place.submit("[[tokens=40]] [[fail_at=7]]")
    row = place.ended(job)
    assert (row["state"], row["failures"], failure_code(row)) == ("failed", 1, "scripted_failure")
    assert place.outcomes(job) == ["failed"]
    assert_counted_once(place, [job])


def test_a_failure_that_another_attempt_cannot_cure_ends_the_job_at_once(place: Place) -> None:
    job = place.submit("[[tokens=40]] [[reject_at=7]]", max_attempts=5)
    assert (place.ended(job)["failures"], place.outcomes(job)) == (1, ["failed"])
    assert_counted_once(place, [job])


def test_an_ended_job_is_retried_as_a_new_one(place: Place) -> None:
    job = place.submit("[[tokens=20]]", seed=5)
    place.ended(job)
    before = place.job(job)
    again = place.post(f"/v1/jobs/{job}/retry").json()
    assert again["retry_of"] == job != again["id"]
    place.ended(again["id"])
    assert place.tokens(again["id"]) == place.tokens(job)
    assert place.job(job) == before


def test_scheduled_and_retryable_jobs_are_due_once_also_after_a_restart(
    new_place: NewPlace,
) -> None:
    place = new_place({"step_s": 0.01})
    place.start()
    later = place.submit("[[tokens=1]]", scheduled_at=at(3600))
    soon = place.submit("[[tokens=30]]", scheduled_at=at(3))
    failing = place.submit("[[tokens=30]] [[fail_at=5]]", max_attempts=2)
    wait_until(lambda: place.store.job(failing)["state"] == "retryable", 20)
    place.restart()
    assert place.job(later)["state"] == "scheduled"
    (stream,) = follow(place, [soon])
    assert stream.finished().ending["state"] == "completed"
    row = place.store.job(soon)
    assert row["started_at"] >= row["scheduled_at"]
    assert place.outcomes(soon) == ["finished"]
    assert place.ended(failing)["failures"] == 2
    assert place.outcomes(failing) == ["failed"] * 2
    assert_counted_once(place, [soon, failing])


def at(seconds: float) -> str:
    """A time so far from now."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def test_the_time_of_an_attempt_begins_with_its_row(new_place: NewPlace) -> None:
    """What waits at the worker's door takes no time of its own."""
    place = new_place({"step_s": 0.02}, {"worker.rows": 1, "worker.prefetch": 2})
    place.start()
    first = place.submit("[[tokens=120]]")
    place.running(first)
    waiting = place.submit("[[tokens=3]]", attempt_timeout_s=1.0)
    assert place.ended(waiting)["state"] == "completed"
    assert place.outcomes(waiting) == ["finished"]


def test_the_usual_deadline_counts_from_when_a_job_may_run(place: Place) -> None:
    job = place.submit("[[tokens=1]]", scheduled_at=at(30 * 24 * 3600))
    row = place.store.job(job)
    assert row["deadline_at"] - row["scheduled_at"] == 7 * 24 * 3600 * 1_000_000
    place.cancel(job)
    refused = place.post(
        "/v1/jobs", {**place.body("x"), "scheduled_at": at(7200), "deadline_s": 3600}
    )
    assert refused.json()["error"]["param"] == "scheduled_at"
