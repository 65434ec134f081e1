"""What the store does for jobs that wait for others, and for dues of schedules."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from app.domain.draft import DueJob, JobDraft
from app.domain.job import JobState, NewJob, OnFailure, Usage
from app.domain.schedules import (
    SCHEDULES_MAX,
    CatchUp,
    Schedule,
    ScheduleState,
    Template,
    Timing,
)
from app.storage.database import DATABASE_NAME, Database
from app.storage.errors import PayloadDamaged
from app.storage.frames import FrameOperation
from app.storage.jobs import end_waiting_job, insert_job, make_due
from app.storage.operations import PARAMETER, Committed, Operation, Void
from app.storage.reading import load_job, load_open_jobs
from app.storage.retention import Expired, delete_expired
from app.storage.schedules import (
    change_schedule,
    delete_schedule,
    insert_schedule,
    load_schedule,
    load_template,
    skip_dues,
)
from app.storage.verify import verify
from shared.ids import ScheduleId
from shared.requests import ChatMessage, ChatRequest
from shared.sampling import SamplingParams
from tests.integration.storage.making import (
    GENERATION,
    NOW,
    job_id,
    make_ending,
    make_job,
    opened,
    query,
    start_generation,
    start_job,
    tamper,
)

HOUR = timedelta(hours=1)
SCHEDULE = ScheduleId(f"sched_{1:032x}")
REQUEST = ChatRequest((ChatMessage("user", "again"),), SamplingParams(seed=1))
TEMPLATE = Template(draft=JobDraft(surface="native", model="tiny", request=REQUEST), seeded=True)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncGenerator[Database]:
    async with opened(tmp_path) as made:
        yield made
        assert await verify(made.readers) == []


def after(number: int, *before: int, on_failure: OnFailure = OnFailure.FAIL) -> NewJob:
    """The n-th job, which waits for others."""
    return make_job(number, after=tuple(map(job_id, before)), on_failure=on_failure)


def ended(
    number: int, state: JobState = JobState.CANCELLED, expected: JobState = JobState.AVAILABLE
) -> Operation:
    """The n-th job's end while it waits."""
    ending = make_ending(number, attempt=0, state=state, finish_reason=None, usage=Usage())
    return end_waiting_job(make_job(number), ending, expected)


async def write(database: Database, *operations: Operation) -> None:
    """As close together as they go."""
    futures = [database.writer.submit(operation) for operation in operations]
    assert [await future for future in futures] == [Committed()] * len(operations)


async def state(database: Database, number: int) -> str:
    row = await load_job(database.readers, job_id(number))
    assert row is not None
    return row.state


async def test_a_job_that_comes_to_wait_while_the_other_ends_is_not_left_waiting(
    database: Database,
) -> None:
    await start_generation(database)
    new = await start_job(database, 1)
    frame = FrameOperation(GENERATION, 1)
    gone = make_ending(1, state=JobState.CANCELLED, finish_reason=None, usage=Usage())
    frame.ended(new, gone, stop_reason=None, outcome="refused", followed=False)
    waits = after(2, 1, on_failure=OnFailure.RUN)
    both = [database.writer.submit(frame), database.writer.submit(insert_job(waits))]
    assert [await future for future in both] == [Committed(), Committed()]
    row = await load_job(database.readers, job_id(2))
    assert row is not None
    assert row.state is JobState.AVAILABLE


@pytest.mark.parametrize("together", [False, True])
async def test_the_end_of_the_last_predecessor_releases_in_its_own_commit(
    database: Database, together: bool
) -> None:
    submitted = [insert_job(make_job(1)), insert_job(make_job(2))]
    waits = insert_job(after(3, 1, 2, on_failure=OnFailure.RUN))
    ends = [ended(1), ended(2)]
    if together:
        await write(database, *submitted, waits, *ends)
    else:
        await write(database, *submitted, waits, ends[0])
        assert await state(database, 3) == "scheduled"
        await write(database, ends[1])
    assert await state(database, 3) == "available"
    row = await load_job(database.readers, job_id(3))
    assert row is not None
    assert row.after == {job_id(1): JobState.CANCELLED, job_id(2): JobState.CANCELLED}
    assert row.available_at == make_ending().finalized_at


async def test_a_job_is_available_at_once_when_all_that_it_waits_for_has_ended(
    database: Database,
) -> None:
    await write(database, insert_job(make_job(1)), ended(1))
    await write(database, insert_job(after(2, 1, on_failure=OnFailure.RUN)))
    assert await state(database, 2) == "available"


async def test_one_that_failed_holds_back_what_it_fails(database: Database) -> None:
    await write(database, insert_job(make_job(1)), insert_job(after(2, 1)), ended(1))
    await write(database, insert_job(after(3, 1)))
    rows = {row.new.id: row for row in await load_open_jobs(database.readers)}
    for number in (2, 3):
        assert rows[job_id(number)].state is JobState.SCHEDULED
        assert rows[job_id(number)].after == {job_id(1): JobState.CANCELLED}


async def test_a_cancel_that_meets_a_release_ends_the_job(database: Database) -> None:
    waits = insert_job(after(2, 1, on_failure=OnFailure.RUN))
    await write(database, insert_job(make_job(1)), waits)
    await write(database, ended(1), ended(2, expected=JobState.SCHEDULED))
    assert await state(database, 2) == "cancelled"


async def test_nobody_waits_for_what_is_not_there_or_of_another_tenant(
    database: Database, tmp_path: Path
) -> None:
    await write(database, insert_job(make_job(1, tenant="them")))
    for before in (1, 9):
        outcome = await database.writer.submit(insert_job(after(3, before)))
        assert outcome == Void("dependency.insert", job_id(before))
    assert query(tmp_path, "SELECT count(*) FROM job") == [(1,)]


async def test_a_job_with_a_time_of_its_own_is_not_due_before_its_predecessors(
    database: Database,
) -> None:
    later = msgspec.structs.replace(after(2, 1, on_failure=OnFailure.RUN), scheduled_at=NOW + HOUR)
    await write(database, insert_job(make_job(1)), insert_job(later))
    due = make_due(job_id(2), NOW + HOUR)
    assert await database.writer.submit(due) == Void("job.due", job_id(2))
    await write(database, ended(1))
    assert await state(database, 2) == "scheduled"
    await write(database, due)
    assert await state(database, 2) == "available"


async def test_an_outcome_outlives_the_job_it_is_of(database: Database, tmp_path: Path) -> None:
    waits = insert_job(after(2, 1, on_failure=OnFailure.RUN))
    await write(database, insert_job(make_job(1)), waits, ended(1))

    async def forget(number: int) -> None:
        gone = Expired(jobs=(job_id(number),), keys=0, now=NOW + HOUR, keep_s=0.0)
        await write(database, delete_expired(gone))

    await forget(1)
    row = await load_job(database.readers, job_id(2))
    assert row is not None
    assert row.after == {job_id(1): JobState.CANCELLED}
    await write(database, ended(2))
    await forget(2)
    assert query(tmp_path, "SELECT count(*) FROM dependency") == [(0,)]


async def test_an_ending_looks_at_nothing_but_what_waits_for_it(
    database: Database, tmp_path: Path
) -> None:
    operation = ended(1)
    for step in operation.steps:
        names = dict.fromkeys(PARAMETER.findall(step.statement.sql))
        plan = query_plan(tmp_path, step.statement.sql, names)
        assert not [line for line in plan if line.startswith("SCAN")], plan


def query_plan(data_dir: Path, sql: str, params: dict[str, None]) -> list[str]:
    with closing(sqlite3.connect(data_dir / DATABASE_NAME)) as driver:
        return [row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {sql}", params)]


# --- schedules ---------------------------------------------------------------------------------


def schedule(**overrides: object) -> Schedule:
    """An hourly schedule that is due in an hour."""
    made = Schedule(
        id=SCHEDULE,
        tenant="default",
        name="hourly",
        state=ScheduleState.ACTIVE,
        timing=Timing(anchor=NOW, every_s=3_600.0, catch_up=CatchUp.NONE),
        next_due=NOW + HOUR,
        last_due=None,
        last_job=None,
        fired=0,
        created_at=NOW,
        updated_at=NOW,
    )
    return msgspec.structs.replace(made, **overrides)


def fire(number: int, due: datetime, expected: datetime | None = None) -> Operation:
    """The n-th job, for this due."""
    firing = DueJob(schedule=SCHEDULE, expected=expected or due, due=due, following=due + HOUR)
    return insert_job(make_job(number, schedule=SCHEDULE), due=firing)


async def test_a_due_fires_once_and_moves_to_the_next(database: Database, tmp_path: Path) -> None:
    first = NOW + HOUR
    await write(database, insert_schedule(schedule(), TEMPLATE, SCHEDULES_MAX))
    await write(database, fire(1, first), fire(2, first + HOUR))
    again = await database.writer.submit(fire(3, first))
    assert again == Void("firing.insert", SCHEDULE)
    assert query(tmp_path, "SELECT count(*) FROM job") == [(2,)]
    found = await load_schedule(database.readers, "default", "hourly")
    assert found == schedule(
        next_due=first + 2 * HOUR, last_due=first + HOUR, last_job=job_id(2), fired=2
    )
    row = await load_job(database.readers, job_id(1))
    assert row is not None
    assert row.new.schedule == SCHEDULE


async def test_what_was_paused_changed_or_deleted_meanwhile_does_not_fire(
    database: Database,
) -> None:
    await write(database, insert_schedule(schedule(), TEMPLATE, SCHEDULES_MAX))
    paused = schedule(state=ScheduleState.PAUSED, next_due=None)
    for moved in (
        skip_dues(SCHEDULE, NOW + HOUR, NOW + 2 * HOUR),
        change_schedule(schedule(next_due=NOW + 2 * HOUR), paused, TEMPLATE),
        delete_schedule(SCHEDULE),
    ):
        await write(database, moved)
        outcome = await database.writer.submit(fire(1, NOW + HOUR))
        assert outcome == Void("schedule.fire", SCHEDULE)
    assert await load_job(database.readers, job_id(1)) is None


async def test_a_change_that_meets_a_firing_is_to_be_decided_again(database: Database) -> None:
    await write(database, insert_schedule(schedule(), TEMPLATE, SCHEDULES_MAX))
    futures = [
        database.writer.submit(fire(1, NOW + HOUR)),
        database.writer.submit(change_schedule(schedule(), schedule(), TEMPLATE)),
    ]
    assert [await future for future in futures] == [
        Committed(),
        Void("schedule.change", SCHEDULE),
    ]


async def test_a_name_is_taken_once_and_there_are_not_too_many(database: Database) -> None:
    await write(database, insert_schedule(schedule(), TEMPLATE, 1))
    for other, most in ((schedule(id="b"), 5), (schedule(id="b", name="b"), 1)):
        outcome = await database.writer.submit(insert_schedule(other, TEMPLATE, most))
        assert outcome == Void("schedule.insert", "b")


async def test_what_a_schedule_submits_is_checked_when_it_is_read(tmp_path: Path) -> None:
    async with opened(tmp_path) as database:
        await write(database, insert_schedule(schedule(), TEMPLATE, SCHEDULES_MAX))
        assert await load_template(database.readers, SCHEDULE) == TEMPLATE
    tamper(tmp_path, "UPDATE schedule SET draft = x'80'")
    async with opened(tmp_path) as database:
        with pytest.raises(PayloadDamaged):
            await load_template(database.readers, SCHEDULE)
