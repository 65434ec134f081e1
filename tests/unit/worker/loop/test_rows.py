"""Who is held, who gets a row, and what is remembered of those who left."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shared.messages import RunJob
from tests.unit.worker.loop.bench import run_job
from worker.rows import ATTEMPTS_REMEMBERED_MAX, Rows, Stage, Verdict


def test_memory_of_attempts_is_bounded_and_forgets_the_oldest() -> None:
    rows = Rows(1, 0)
    for number in range(ATTEMPTS_REMEMBERED_MAX + 1):
        rows.leave(rows.take(run_job(number, f"job_{number}")))
    assert rows.judge(run_job(1, "job_0")) is Verdict.TAKEN
    assert rows.judge(run_job(1, f"job_{ATTEMPTS_REMEMBERED_MAX}")) is Verdict.STALE


def test_row_numbers_are_never_used_twice() -> None:
    rows = Rows(1, 0)
    given_rows: list[int] = []
    for number in range(3):
        held = rows.take(run_job(number, f"job_{number}"))
        rows.prepared(held, [1], "d")
        given_rows.append(rows.start(held))
        rows.leave(held)
    assert given_rows == [1, 2, 3]


def of_class(command: int, class_rank: int) -> RunJob:
    return msgspec.structs.replace(run_job(command, f"job_{command}"), class_rank=class_rank)


def test_a_higher_class_gets_its_row_before_earlier_commands() -> None:
    rows = Rows(1, 3)
    for command, class_rank in ((1, 2), (2, 1), (3, 0), (4, 0)):
        rows.prepared(rows.take(of_class(command, class_rank)), [1], "d")
    order: list[int] = []
    while (held := rows.next_to_start()) is not None:
        rows.start(held)
        rows.leave(held)
        order.append(held.run.command)
    assert order == [3, 4, 2, 1]


def test_a_row_is_kept_for_a_higher_class_whose_prompt_is_being_prepared() -> None:
    rows = Rows(2, 2)
    urgent = rows.take(of_class(1, 0))
    batch = [rows.take(of_class(command, 2)) for command in (2, 3)]
    for held in batch:
        rows.prepared(held, [1], "d")
    assert rows.next_to_start() is batch[0], "there is a row for each of them"
    rows.start(batch[0])
    assert rows.next_to_start() is None
    rows.prepared(urgent, [1], "d")
    assert rows.next_to_start() is urgent


@given(st.lists(st.sampled_from(["take", "prepare", "start", "leave"]), max_size=60), st.data())
def test_the_bounds_hold_whatever_happens(steps: list[str], data: st.DataObject) -> None:
    rows = Rows(2, 3)
    for number, step in enumerate(steps):
        held = rows.all()
        preparing = [job for job in held if job.stage is Stage.PREPARING]
        if step == "take":
            run = run_job(number + 1, f"job_{number}")
            if rows.judge(run) is Verdict.TAKEN:
                rows.take(run)
        elif step == "prepare" and preparing:
            rows.prepared(data.draw(st.sampled_from(preparing)), [1], "d")
        elif step == "start" and (due := rows.next_to_start()) is not None:
            waiting = [job for job in held if job.stage is Stage.WAITING]
            assert due.run.command == min(job.run.command for job in waiting)
            rows.start(due)
        elif step == "leave" and held:
            rows.leave(data.draw(st.sampled_from(held)))
        assert rows.running <= 2
        assert rows.running + rows.pending == len(rows.all()) <= 5
        assert rows.credit.rows_free == 5 - len(rows.all())
        assert rows.running == len(rows.running_jobs())
