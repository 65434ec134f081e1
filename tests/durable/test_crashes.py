"""Processes that die between two particular steps."""

from contextlib import ExitStack

from tests.durable.conftest import NewPlace
from tests.durable.disturbing import Load, assert_undisturbed, scripted
from tests.durable.place import assert_counted_once
from tests.durable.streams import follow
from tests.e2e.calls import Call
from tests.e2e.store import failure_code, job_id

COMMITTED = "app.dispatch.sessions:Session.frame_committed"
ENDLESS = "[[tokens=100000]]"
HASTY = {"server.cancel_wait_s": 0.1}
"""For cancels that are not answered in time anyhow."""


def four_jobs(tokens: int = 40) -> Load:
    return scripted(*(f"job {n} [[tokens={tokens}]]" for n in range(4)))


def test_a_worker_killed_between_fold_and_ack(new_place: NewPlace) -> None:
    place, load = new_place({"step_s": 0.01}), four_jobs()
    place.start(f"worker-dies-before {COMMITTED} 8")
    streams = [stream.finished() for stream in follow(place, load.submit(place))]
    assert_undisturbed(place, load, streams)
    outcomes = [place.outcomes(stream.job) for stream in streams]
    assert ["lost", "finished"] in outcomes
    # The frame whose Ack the worker never saw counts: its tokens were replayed, not made again.
    assert all(sum(row["delivered_tokens"] for row in place.attempts(s.job)) == 41 for s in streams)


def test_a_parent_killed_between_fold_and_ack(new_place: NewPlace) -> None:
    place, load = new_place({"step_s": 0.01}), four_jobs()
    place.start(f"die-before {COMMITTED} 8")
    streams = follow(place, load.submit(place))
    place.parent_died()
    place.start()
    assert_undisturbed(place, load, [stream.finished() for stream in streams])
    assert all(place.outcomes(stream.job) == ["finished"] for stream in streams)


def test_a_parent_killed_while_a_durable_ending_and_two_attached_deltas_wait_for_the_writer(
    new_place: NewPlace,
) -> None:
    place, load = new_place({"step_s": 0.02}), scripted("[[tokens=20]]")
    server = place.start("die-on-mixed-frame")
    with ExitStack() as stack:
        calls = [stack.enter_context(Call(server, ENDLESS)) for _ in range(2)]
        for call in calls:
            call.read_text(5)
        (stream,) = follow(place, load.submit(place))
        place.parent_died()
    assert place.store.job(stream.job)["state"] == "running"
    place.start()
    assert_undisturbed(place, load, [stream.finished()])
    assert place.outcomes(stream.job) == ["finished"]
    attached = [job_id(call.answer_id) for call in calls]
    for job in attached:
        row = place.ended(job)
        assert (row["state"], failure_code(row)) == ("failed", "parent_lost")
        assert row["completion_tokens"] > 10
    assert_counted_once(place, attached)


def test_a_cancelled_job_whose_worker_dies_before_it_answers(new_place: NewPlace) -> None:
    place, load = new_place({"step_s": 0.02}, HASTY), four_jobs(50)
    place.start()
    streams = follow(place, load.submit(place))
    hung = place.submit("[[tokens=100]] [[hang_at=10]]")
    place.running(hung, 10)
    assert place.cancel(hung)["state"] == "running"
    assert place.store.job(hung)["stop_reason"] == "cancel"
    place.worker().kill()
    row = place.ended(hung)
    assert (row["state"], row["completion_tokens"], row["losses"]) == ("cancelled", 10, 0)
    assert_undisturbed(place, load, [stream.finished() for stream in streams])
    assert_counted_once(place, [hung])
    assert place.cancel(hung)["state"] == "cancelled"


def test_a_parent_restarted_twice_while_a_worker_replays(new_place: NewPlace) -> None:
    # Slow steps: frames that wait are one commit, and the fourth comes only while the worker works.
    place, load = new_place({"step_s": 0.03}), four_jobs(250)
    place.start()
    streams = follow(place, load.submit(place))
    place.running(streams[0].job)
    place.kill_parent()
    for _ in range(2):
        place.start(f"die-before {COMMITTED} 4")
        place.parent_died()
    place.start()
    assert_undisturbed(place, load, [stream.finished() for stream in streams])
    assert all(place.outcomes(stream.job) == ["finished"] for stream in streams)


def test_commands_of_a_killed_parent_that_arrive_after_its_successor_has_started(
    new_place: NewPlace,
) -> None:
    place, load = new_place({"step_s": 0.01}, HASTY), four_jobs()
    place.start()
    running = place.submit(ENDLESS)
    place.running(running)
    worker = place.worker()
    worker.suspend()
    jobs = load.submit(place)
    assert place.cancel(running)["state"] == "running"
    place.restart()
    assert place.store.job(running)["state"] == "running"
    worker.resume()
    streams = [stream.finished() for stream in follow(place, jobs)]
    assert_undisturbed(place, load, streams)
    assert all(place.outcomes(job) == ["finished"] for job in jobs)
    assert place.ended(running)["state"] == "cancelled"
    assert place.outcomes(running) == ["stopped"]
    assert_counted_once(place, [running])
    assert place.worker().pid == worker.pid
