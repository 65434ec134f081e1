import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.domain.job import StopReason
from app.storage.committing import CommitHooks
from app.storage.database import Database
from app.storage.driver import Driver
from app.storage.errors import StoreFailed, StoreFull
from app.storage.frames import FrameOperation
from app.storage.jobs import insert_job, request_stop
from app.storage.operations import Committed, Operation, Outcome, Void
from tests.integration.storage.making import (
    GENERATION,
    NOW,
    QUICK,
    job_id,
    make_job,
    query,
    start_generation,
)
from tests.waiting import wait_until

BIG = bytes(2_000_000)


class Disk:
    """Lets the database grow, or not."""

    def __init__(self) -> None:
        self.full = False
        self.refused = threading.Event()

    def hooks(self) -> CommitHooks:
        return CommitHooks(before_begin=self._limit)

    def _limit(self, driver: Driver, _operations: Sequence[Operation]) -> None:
        ((pages,),) = driver.execute("PRAGMA page_count").fetchall()
        limit = pages if self.full else 1_073_741_823
        driver.execute(f"PRAGMA max_page_count = {limit}").fetchall()


async def open_on(disk: Disk, data_dir: Path, told: list[bool]) -> Database:
    return await Database.open(
        data_dir, limits=QUICK, hooks=disk.hooks(), on_full=told.append, now=lambda: NOW
    )


async def until_full(database: Database) -> None:
    await asyncio.to_thread(wait_until, lambda: database.writer.full, what="a full disk")


def grow(number: int) -> Operation:
    """A patient operation that needs room: a job with a large body."""
    operation = insert_job(make_job(number, request=BIG))
    return Operation(name="grow", subjects=operation.subjects, steps=operation.steps)


async def test_what_waits_on_a_full_disk_is_committed_in_order_once_there_is_room(
    data_dir: Path,
) -> None:
    disk, told = Disk(), list[bool]()
    database = await open_on(disk, data_dir, told)
    disk.full = True
    patient: list[asyncio.Future[Outcome]] = []
    for number in range(1, 4):
        patient.append(database.writer.submit(grow(number)))
        patient.append(
            database.writer.submit(request_stop(job_id(number), StopReason.DEADLINE, NOW))
        )
    await until_full(database)
    assert not any(future.done() for future in patient)
    disk.full = False
    assert await asyncio.gather(*patient) == [Committed()] * 6
    assert database.writer.counts.retries >= 1
    assert told == [True, False]
    assert not database.writer.full
    await database.close()
    assert query(data_dir, "SELECT count(*) FROM job WHERE stop_reason = 'deadline'") == [(3,)]


async def test_a_submission_on_a_full_disk_is_told_at_once_and_nothing_of_it_stays(
    data_dir: Path,
) -> None:
    disk, told = Disk(), list[bool]()
    database = await open_on(disk, data_dir, told)
    disk.full = True
    with pytest.raises(StoreFull):
        await database.writer.submit(insert_job(make_job(1, request=BIG)))
    with pytest.raises(StoreFull):
        await database.writer.submit(insert_job(make_job(2, request=BIG)))
    disk.full = False
    # What fits into pages that are there already tells of room in between, if it comes so soon.
    await asyncio.to_thread(wait_until, lambda: told[-1:] == [False], what="room again")
    assert await database.writer.submit(insert_job(make_job(3))) == Committed()
    await database.close()
    assert query(data_dir, "SELECT id FROM job") == [(job_id(3),)]


async def test_a_stop_behind_a_refused_submission_is_void(data_dir: Path) -> None:
    disk, told = Disk(), list[bool]()
    database = await open_on(disk, data_dir, told)
    disk.full = True
    insert, stop = database.writer.submit_many(
        [
            insert_job(make_job(1, request=BIG)),
            request_stop(job_id(1), StopReason.DEADLINE, NOW),
        ]
    )
    with pytest.raises(StoreFull):
        await insert
    disk.full = False
    assert await stop == Void("job.stop", job_id(1))
    await database.close()


async def test_frames_wait_out_a_full_disk_in_order(data_dir: Path) -> None:
    disk, told = Disk(), list[bool]()
    database = await open_on(disk, data_dir, told)
    await start_generation(database)
    disk.full = True
    stuck = database.writer.submit(grow(1))
    frames = [FrameOperation(GENERATION, seq).build() for seq in range(1, 6)]
    futures = database.writer.submit_many(frames)
    await until_full(database)
    disk.full = False
    assert await asyncio.gather(stuck, *futures) == [Committed()] * 6
    await database.close()


async def test_closing_on_a_full_disk_ends_and_acknowledges_nothing(data_dir: Path) -> None:
    disk, told = Disk(), list[bool]()
    database = await open_on(disk, data_dir, told)
    disk.full = True
    stuck = database.writer.submit(grow(1))
    await until_full(database)
    await database.close()
    with pytest.raises(StoreFailed):
        await stuck
    assert query(data_dir, "SELECT count(*) FROM job") == [(0,)]


async def test_another_process_that_holds_the_file_is_waited_for(data_dir: Path) -> None:
    refusals = iter(range(3))

    def busy(_driver: Driver, _operations: Sequence[Operation]) -> None:
        if next(refusals, None) is not None:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error

    database = await Database.open(data_dir, limits=QUICK, hooks=CommitHooks(before_begin=busy))
    assert await database.writer.submit(insert_job(make_job())) == Committed()
    assert database.writer.counts.retries == 3
    assert not database.writer.full
    await database.close()
