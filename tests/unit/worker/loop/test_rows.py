"""Who is held, who gets a row, and what is remembered of those who left."""

from hypothesis import given
from hypothesis import strategies as st

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
