"""What the next parent finds of the one before, at whichever moment that was killed."""

import pytest

from tests.durable.conftest import NewPlace
from tests.durable.disturbing import (
    assert_nothing_computed_again,
    assert_undisturbed,
    let_pass,
    scripted,
)
from tests.durable.draining import drain, drained
from tests.durable.place import assert_counted_once
from tests.durable.streams import follow
from tests.waiting import wait_until

COMMIT = "app.storage.committing:Committer.commit"
pytestmark = pytest.mark.timeout(120)


def test_a_worker_whose_parent_died_right_after_the_spawn_is_found_and_watched(
    new_place: NewPlace,
) -> None:
    """No row says which process it is; it says so itself. Were it not watched from then on, only
    a silence of a minute would tell of its death."""
    settings = {"worker.heartbeat_timeout_s": 3600}
    place, load = new_place({"step_s": 0.01}, settings), scripted("[[tokens=150]]")
    place.start("die-after app.services.launching:Launcher.spawn 1")
    try:
        streams = follow(place, load.submit(place))
    finally:
        place.parent_died()
    (worker,) = place.site.workers()
    place.start()
    place.running(streams[0].job, 5)
    assert [row["pid"] for row in place.store.rows("SELECT pid FROM generation")] == [worker.pid]
    worker.kill()
    assert_undisturbed(place, load, [stream.finished() for stream in streams])
    assert place.outcomes(streams[0].job) == ["lost", "finished"]


def test_a_worker_that_loads_while_its_parent_dies_is_adopted_and_given_its_jobs(
    new_place: NewPlace,
) -> None:
    place, load = new_place({"load_s": 1.5}), scripted("[[tokens=30]]", "other [[tokens=30]]")
    place.start()
    streams = follow(place, load.submit(place))
    worker = place.worker()
    place.restart()
    assert_undisturbed(place, load, [stream.finished() for stream in streams])
    assert_nothing_computed_again(place, [stream.job for stream in streams])
    assert place.worker().pid == worker.pid


def test_rows_that_were_asked_back_by_a_killed_parent_are_asked_back_by_the_next(
    new_place: NewPlace,
) -> None:
    """The worker is stopped, so that it cannot answer the first parent."""
    place, load = new_place({"step_s": 0.01}), scripted("[[tokens=150]]", "other [[tokens=150]]")
    place.start()
    streams = follow(place, load.submit(place))
    for stream in streams:
        place.running(stream.job)
    worker = place.worker()
    worker.suspend()
    drain(place, "checkpoint")
    wait_until(lambda: [row["kind"] for row in place.store.commands()] == ["preempt"] * 2)
    place.restart()
    worker.resume()
    wait_until(
        lambda: all(place.outcomes(s.job) == ["preempted", None] for s in streams),
        20,
        "the second attempts",
    )
    drain(place, "checkpoint")
    view = drained(place)
    assert (view["state"], view["given_back"]) == ("completed", 2)
    place.post("/admin/v1/resume")
    assert_undisturbed(place, load, [stream.finished() for stream in streams])


def test_a_job_that_ends_while_it_waits_is_counted_by_what_earlier_parents_delivered(
    new_place: NewPlace,
) -> None:
    place = new_place({"step_s": 0.01})
    place.start()
    job = place.submit("[[tokens=1000]]")
    failing = place.submit("[[tokens=1000]] [[fail_at=40]]", max_attempts=2)
    place.running(job, 10)
    wait_until(lambda: place.outcomes(failing)[:1] == ["failed"], 20)
    drain(place, "checkpoint")
    assert drained(place)["state"] == "completed"
    delivered = len(place.tokens(job))
    place.kill_parent()
    place.worker_gone()
    place.script["load_s"] = 3600
    place.start()
    for cancelled, tokens in ((job, delivered), (failing, 40)):
        assert place.cancel(cancelled)["usage"]["completion_tokens"] == tokens
    assert_counted_once(place, [job, failing])


def test_an_attempts_time_is_counted_on_by_the_next_parent(new_place: NewPlace) -> None:
    place = new_place({"step_s": 0.01})
    place.start()
    job = place.submit("[[tokens=100000]]", attempt_timeout_s=1.5)
    place.running(job, 5)
    place.restart()
    row = place.ended(job)
    assert place.job(job)["failure"]["code"] == "attempt_timeout"
    assert (row["state"], row["failures"]) == ("failed", 1)
    (attempt,) = place.attempts(job)
    assert 1.5e6 <= attempt["ended_at"] - attempt["claimed_at"] < 15e6
    assert_counted_once(place, [job])


def test_parents_that_die_in_the_midst_of_their_start_leave_everything_to_the_next(
    new_place: NewPlace,
) -> None:
    """Each comes one commit or some further than the one before."""
    place, load = new_place({"step_s": 0.01}), scripted(*[f"{n} [[tokens=250]]" for n in range(4)])
    place.start()
    streams = follow(place, load.submit(place))
    for stream in streams:
        place.running(stream.job)
    drain(place, "finish", timeout_s=3000)
    place.kill_parent()
    for commits in (1, 2, 3, 5, 8):
        place.start_and_die(f"die-before {COMMIT} {commits}")
    place.start()
    assert_undisturbed(place, load, [stream.finished() for stream in streams])
    assert_nothing_computed_again(place, [stream.job for stream in streams])
    (row,) = place.store.rows("SELECT * FROM drain")
    assert (row["state"], row["reason"]) == ("failed", "interrupted")
    assert len(place.store.reports(row["id"])) == 1


def test_a_parent_that_was_stopped_gives_its_worker_back_the_time(new_place: NewPlace) -> None:
    """The worker seems to have been silent for longer than it may."""
    place, load = (
        new_place({"step_s": 0.02}, {"worker.heartbeat_timeout_s": 1.0}),
        scripted(*[f"{n} [[tokens=120]]" for n in range(4)]),
    )
    place.start()
    streams = follow(place, load.submit(place))
    for stream in streams:
        place.running(stream.job)
    worker = place.worker()
    place.suspend_parent()
    let_pass(2)
    place.go_on_parent()
    assert_undisturbed(place, load, [stream.finished() for stream in streams])
    assert_nothing_computed_again(place, [stream.job for stream in streams])
    assert place.worker().pid == worker.pid
