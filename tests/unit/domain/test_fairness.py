"""Who goes next, case by case. The laws are in ``tests/property/test_fairness.py``."""

import pytest

from app.domain.fairness import EXACT_MAX, FairQueue, Held, estimate
from app.domain.job import JobClass
from app.domain.tenants import Waiting
from shared.ids import JobId

INTERACTIVE, BACKGROUND, BATCH = JobClass
AGEING_S = 60.0
STARVE_S = 60.0
NOTHING = Held()


def waiting(
    job: str,
    job_class: JobClass = INTERACTIVE,
    priority: int = 0,
    *,
    tenant: str = "default",
    cost: int = 100,
    since: float = 0.0,
) -> Waiting:
    return Waiting(JobId(f"job_{job}"), job_class, priority, tenant, cost, since)


def queue_of(*jobs: Waiting, now: float = 0.0) -> FairQueue:
    queue = FairQueue(ageing_s=AGEING_S, starve_s=STARVE_S)
    for job in jobs:
        queue.push(job, now)
    return queue


def picks(queue: FairQueue, now: float = 0.0, held: Held = NOTHING, count: int = 100) -> list[str]:
    """The names of the next jobs, in order."""
    found: list[str] = []
    while len(found) < count and (job := queue.pick(now, held)) is not None:
        found.append(job.job.removeprefix("job_"))
    return found


def test_jobs_leave_by_class_then_number_then_age() -> None:
    queue = queue_of(
        waiting("1", BATCH),
        waiting("2", BACKGROUND),
        waiting("4", since=1),
        waiting("3", since=0),
        waiting("5", priority=1, since=2),
    )
    assert picks(queue, now=3) == ["5", "3", "4", "2", "1"]
    assert len(queue) == 0


def test_of_two_that_came_together_the_lower_id_goes_first() -> None:
    assert picks(queue_of(waiting("2"), waiting("1"))) == ["1", "2"]


def test_a_job_is_handed_out_once_however_often_it_is_pushed() -> None:
    queue = queue_of(waiting("1"), waiting("1"))
    assert picks(queue) == ["1"]


def test_a_removed_job_is_not_handed_out() -> None:
    queue = queue_of(waiting("1"), waiting("2"), waiting("3"))
    assert queue.remove(JobId("job_2"))
    assert queue.remove(JobId("job_1"))
    assert not queue.remove(JobId("job_1"))
    assert picks(queue) == ["3"]


def test_a_job_that_comes_back_keeps_its_age() -> None:
    queue = queue_of(*(waiting(str(n), since=n) for n in range(1, 5)))
    first, second = queue.pick(9, NOTHING), queue.pick(9, NOTHING)
    assert first is not None
    assert second is not None
    for job in (second, first):
        queue.push(job.copy(), 9)
    assert picks(queue, now=9) == ["1", "2", "3", "4"]


def test_a_tenant_with_one_job_starts_at_the_next_pick_beside_one_with_thousands() -> None:
    queue = queue_of(*(waiting(f"a{n:04}", tenant="many") for n in range(5_000)))
    picks(queue, count=7)
    queue.push(waiting("b", tenant="one", since=5), 5)
    assert "b" in picks(queue, now=5, count=2)


def test_a_tenant_whose_estimates_were_far_too_high_does_not_pass_a_newcomer_by_them() -> None:
    queue = queue_of(*(waiting(f"a{n:03}", tenant="many", cost=10_000) for n in range(100)))
    picks(queue, count=16)
    queue.push(waiting("b", tenant="one", since=5), 5)
    for _ in range(16):
        queue.settle(INTERACTIVE, "many", 10_000, 10)
    assert "b" in picks(queue, now=5, count=2)


def test_a_tenant_that_was_away_has_not_saved_up() -> None:
    queue = queue_of(*(waiting(f"a{n:03}", tenant="a") for n in range(100)))
    picks(queue, count=50)
    for _ in range(50):
        queue.settle(INTERACTIVE, "a", 100, 100)
    for n in range(10):
        queue.push(waiting(f"b{n}", tenant="b", since=1), 1)
    assert picks(queue, now=1, count=8).count("a050") == 1
    assert len([name for name in picks(queue, now=1, count=8) if name[0] == "b"]) == 4


def test_tenants_share_by_tokens_and_not_by_jobs() -> None:
    queue = queue_of(
        *(waiting(f"a{n:02}", tenant="a", cost=300) for n in range(30)),
        *(waiting(f"b{n:02}", tenant="b", cost=100) for n in range(30)),
    )
    taken = picks(queue, count=20)
    assert len([name for name in taken if name[0] == "a"]) == 5


def test_age_lifts_a_job_to_the_highest_number_and_not_past_it() -> None:
    queue = queue_of(
        waiting("old", tenant="old", since=0),
        *(waiting(f"high{n}", tenant="high", priority=2, since=100) for n in range(4)),
    )
    assert picks(queue, now=100, count=1) == ["high0"]  # it has aged by one number and a bit
    queue.settle(INTERACTIVE, "high", 100, 100)
    assert picks(queue, now=2 * AGEING_S, count=1) == ["old"]
    assert picks(queue, now=2 * AGEING_S) == ["high1", "high2", "high3"]


def test_age_alone_takes_no_turn_from_another_tenant() -> None:
    queue = queue_of(*(waiting(f"a{n}", tenant="a", since=0) for n in range(9)))
    queue.push(waiting("b", tenant="b", since=1_000), 1_000)
    assert "b" in picks(queue, now=1_000, count=2)


def test_inside_a_tenant_an_old_job_passes_a_younger_one_of_a_higher_number() -> None:
    queue = queue_of(waiting("old", since=0), waiting("new", priority=1, since=AGEING_S + 1))
    assert picks(queue, now=AGEING_S + 1) == ["old", "new"]


def test_a_tenant_at_its_limit_waits_while_others_pass() -> None:
    queue = queue_of(
        waiting("a1", tenant="a", priority=5), waiting("a2", tenant="a"), waiting("b1", tenant="b")
    )
    held = Held(rows_max=2)
    held.add("a", INTERACTIVE)
    assert picks(queue, held=held, count=1) == ["a1"]
    held.add("a", INTERACTIVE)
    assert picks(queue, held=held) == ["b1"]
    assert picks(queue) == ["a2"]


def test_a_full_tenant_of_a_higher_class_lets_a_lower_class_through() -> None:
    queue = queue_of(waiting("a", tenant="a"), waiting("b", BATCH, tenant="b"))
    held = Held(rows_max=1)
    held.add("a", INTERACTIVE)
    assert picks(queue, held=held) == ["b"]


def test_a_reserved_row_is_for_interactive_jobs_alone() -> None:
    queue = queue_of(waiting("b", BATCH))
    assert queue.pick(0, NOTHING, reserved=True) is None
    queue.push(waiting("i"), 0)
    job = queue.pick(0, NOTHING, reserved=True)
    assert job is not None
    assert job.job == "job_i"


def test_a_starved_class_gets_one_row_and_then_its_share_of_the_tokens() -> None:
    queue = queue_of(*(waiting(f"b{n}", BATCH, tenant="b") for n in range(3)))
    for n in range(100):
        queue.push(waiting(f"i{n:02}"), 0)
    assert picks(queue, now=STARVE_S - 1, count=5) == ["i00", "i01", "i02", "i03", "i04"]
    assert queue.starves(BATCH, STARVE_S)
    running = Held()
    running.add("b", BATCH)
    assert picks(queue, now=STARVE_S, count=1) == ["b0"]
    assert picks(queue, now=STARVE_S, held=running, count=1) == ["i05"]
    later = picks(queue, now=STARVE_S, count=45)
    assert later.index("b1") == 19  # after 20 x 100 tokens of others
    assert later.index("b2") == 40


@pytest.mark.parametrize("reserved", [True, False])
def test_what_the_floor_owes_may_take_the_reserved_row(reserved: bool) -> None:
    queue = queue_of(waiting("b", BATCH), waiting("i"))
    job = queue.pick(STARVE_S, NOTHING, reserved=reserved)
    assert job is not None
    assert job.job == "job_b"


def test_a_class_that_had_its_turn_waits_anew() -> None:
    queue = queue_of(waiting("b1", BATCH), waiting("b2", BATCH))
    assert picks(queue, now=50, count=1) == ["b1"]
    queue.push(waiting("i1"), 50)
    assert not queue.starves(BATCH, STARVE_S)
    assert picks(queue, now=STARVE_S, count=1) == ["i1"]


def test_positions_are_those_of_the_picks() -> None:
    queue = queue_of(
        *(waiting(f"a{n}", tenant="a") for n in range(5)),
        *(waiting(f"b{n}", BATCH, tenant="b") for n in range(3)),
        *(waiting(f"c{n}", tenant="c", cost=250, priority=n) for n in range(3)),
    )
    positions = {job: queue.position(job, 0) for job in queue}
    assert queue.position(JobId("job_x"), 0) is None
    order = picks(queue)
    assert [positions[JobId(f"job_{name}")] for name in order] == list(range(len(order)))


def test_positions_in_a_long_queue_are_estimates() -> None:
    queue = queue_of(*(waiting(f"{n:05}", tenant=f"t{n % 2}") for n in range(2 * EXACT_MAX)))
    queue.push(waiting("z", BATCH), 0)
    assert queue.position(JobId("job_00000"), 0) == 0
    assert queue.position(JobId("job_01000"), 0) == EXACT_MAX
    assert queue.position(JobId("job_z"), 0) == 2 * EXACT_MAX


def test_an_estimate_is_the_prompt_and_what_may_be_answered() -> None:
    assert estimate(400, 50) == 150
    assert estimate(0, None) > 100
    assert estimate(0, 0) == 1
