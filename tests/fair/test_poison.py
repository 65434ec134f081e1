"""Who pays for a worker that died: the job that always dies at the same place, and nobody else."""

import signal
from typing import Any

from tests.durable.place import Place, assert_counted_once
from tests.e2e.store import failure_code
from tests.fair.conftest import NewPlace
from tests.waiting import wait_until

ROWS = {"worker.rows": 8, "worker.prefetch": 0}
STALL_S = 0.6


def workers_started(place: Place) -> int:
    return len(place.store.rows("SELECT id FROM generation"))


def test_a_poison_among_seven_fails_after_one_death_alone_and_the_seven_complete(
    new_place: NewPlace,
) -> None:
    place = new_place({"step_s": 0.02}, ROWS)
    content = {n: f"[[tokens=40]] job {n}" for n in range(8)}
    content[3] += " [[crash_at=6]]"
    jobs = {n: place.submit(text, n) for n, text in content.items()}
    poison = jobs.pop(3)
    row = place.ended(poison)
    assert (row["state"], failure_code(row)) == ("failed", "worker_crashed")
    assert place.outcomes(poison) == ["lost"] * 3
    for job in jobs.values():
        assert place.ended(job)["state"] == "completed"
        assert place.store.job(job)["completion_tokens"] == 41
    (last,) = place.attempts(poison)[2:]
    for other in attempts_on(place, last["generation"]):  # other suspects had their turn before
        assert other["job"] == poison or other["ended_at"] <= last["accepted_at"], "it died alone"
    assert workers_started(place) == 4
    assert place.server.get("/readyz").status_code == 200
    assert_counted_once(place, [poison, *jobs.values()])


def attempts_on(place: Place, generation: str) -> list[dict[str, Any]]:
    sql = "SELECT job, ended_at FROM attempt WHERE generation = ? AND accepted_at IS NOT NULL"
    return place.store.rows(sql, generation)


def test_an_innocent_job_that_was_running_in_three_kills_completes(new_place: NewPlace) -> None:
    place = new_place({"step_s": 0.02}, ROWS)
    job = place.submit("[[tokens=60]]")
    for kill in range(3):
        place.running(job, 10 * (kill + 1))
        place.worker().send_signal(signal.SIGKILL)
        wait_until(lambda lost=kill + 1: place.store.job(job)["losses"] == lost, 5, "the loss")
        place.post(f"/admin/v1/models/{place.model}/reset")  # nor wait for what is no cause
    row = place.ended(job)
    assert row["state"] == "completed"
    assert place.outcomes(job) == [*["lost"] * 3, "finished"]
    assert (row["losses"], row["held_deaths"], row["held_alone"]) == (3, 0, 0)
    assert len(place.tokens(job)) == 61


def test_a_job_that_hangs_the_engine_fails_and_costs_no_other_its_end(new_place: NewPlace) -> None:
    place = new_place({"step_s": 0.01}, {**ROWS, "worker.engine_stall_s": STALL_S})
    hangs = place.submit("[[tokens=40]] [[hang_at=6]]")
    others = [place.submit("[[tokens=40]]", n) for n in range(3)]
    row = place.ended(hangs)
    assert (row["state"], failure_code(row)) == ("failed", "worker_crashed")
    assert place.outcomes(hangs) == ["lost"] * 3
    assert [place.ended(job)["state"] for job in others] == ["completed"] * 3
    reasons = place.store.rows("SELECT exit_reason FROM generation WHERE state = 'gone'")
    assert all("engine has finished nothing" in row["exit_reason"] for row in reasons)


def test_a_worker_that_is_slow_or_idle_is_not_taken_for_wedged(new_place: NewPlace) -> None:
    place = new_place({"step_s": 0.01}, {**ROWS, "worker.engine_stall_s": STALL_S})
    slow = place.submit(f"[[tokens=3]] [[prepare_s={2 * STALL_S}]]")
    assert place.ended(slow)["state"] == "completed"
    sleepy = place.submit(f"[[tokens=9]] [[sleep_at=4]] [[sleep_s={STALL_S / 2}]]")
    assert place.ended(sleepy)["state"] == "completed"
    wait_until(lambda: not place.server.metric("jobs_open"), 5, "quiet")
    assert workers_started(place) == 1
