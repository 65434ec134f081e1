import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.domain.errors import ServerOverloaded
from app.domain.job import StopReason
from app.storage.committing import CommitHooks
from app.storage.database import Database
from app.storage.driver import Driver
from app.storage.errors import OperationFailed, StoreFailed
from app.storage.frames import FrameOperation
from app.storage.jobs import insert_job, request_stop
from app.storage.limits import WriterLimits
from app.storage.operations import Committed, Operation, Void
from tests.integration.storage.making import (
    GENERATION,
    NOW,
    QUICK,
    job_id,
    make_job,
    names_in,
    opened,
    query,
    start_generation,
)
from tests.waiting import wait_until


class Gate:
    """Holds the writer's thread in front of a commit until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def hooks(self) -> CommitHooks:
        return CommitHooks(before_commit=self._wait)

    def _wait(self, _driver: Driver, _operations: Sequence[Operation]) -> None:
        self.reached.set()
        assert self.open.wait(10)


async def test_an_operation_is_on_disk_when_its_future_is_done(
    database: Database, data_dir: Path
) -> None:
    assert await database.writer.submit(insert_job(make_job())) == Committed()
    assert query(data_dir, "SELECT id, state FROM job") == [(job_id(1), "available")]


async def test_what_gathers_in_one_turn_of_the_loop_shares_one_commit(database: Database) -> None:
    before = database.writer.counts.committed.commits
    futures = [database.writer.submit(insert_job(make_job(n))) for n in range(50)]
    assert set(await asyncio.gather(*futures)) == {Committed()}
    assert database.writer.counts.committed.commits == before + 1


async def test_what_gathers_during_a_commit_shares_the_next_one(data_dir: Path) -> None:
    gate = Gate()
    async with opened(data_dir, gate.hooks()) as database:
        first = database.writer.submit(insert_job(make_job(0)))
        assert await asyncio.to_thread(gate.reached.wait, 10)
        rest = [database.writer.submit(insert_job(make_job(n))) for n in range(1, 40)]
        assert not first.done()
        gate.open.set()
        await asyncio.gather(first, *rest)
        assert database.writer.counts.committed.commits == 2


async def test_the_loop_runs_while_a_commit_takes_long(data_dir: Path) -> None:
    gate = Gate()
    async with opened(data_dir, gate.hooks()) as database:
        future = database.writer.submit(insert_job(make_job()))
        assert await asyncio.to_thread(gate.reached.wait, 10)
        turns = 0
        for _ in range(1000):
            await asyncio.sleep(0)
            turns += 1
        assert (turns, future.done()) == (1000, False)
        gate.open.set()
        await future


async def test_two_operations_on_one_job_keep_their_order_and_their_own_commits(
    database: Database, data_dir: Path
) -> None:
    before = database.writer.counts.committed.commits
    insert, stop = database.writer.submit_many(
        [insert_job(make_job()), request_stop(job_id(1), StopReason.CANCEL, NOW)]
    )
    assert (await insert, await stop) == (Committed(), Committed())
    assert database.writer.counts.committed.commits == before + 2
    assert query(data_dir, "SELECT stop_reason FROM job") == [("cancel",)]


async def test_a_duplicate_among_a_hundred_fails_alone(database: Database, data_dir: Path) -> None:
    await database.writer.submit(insert_job(make_job(41)))
    futures = database.writer.submit_many([insert_job(make_job(n)) for n in range(100)])
    results = await asyncio.gather(*futures, return_exceptions=True)
    failed = [n for n, result in enumerate(results) if result != Committed()]
    assert failed == [41]
    error = results[41]
    assert isinstance(error, OperationFailed)
    assert (error.statement, error.subject) == ("job.insert", job_id(41))
    assert query(data_dir, "SELECT count(*) FROM job") == [(100,)]


async def test_a_lost_race_is_void_and_its_neighbours_are_committed(
    database: Database, data_dir: Path
) -> None:
    stop = request_stop(job_id(7), StopReason.CANCEL, NOW)
    void, insert = database.writer.submit_many([stop, insert_job(make_job(1))])
    assert await void == Void("job.stop", job_id(7))
    assert await insert == Committed()
    counts = database.writer.counts.committed
    assert (counts.replays, counts.voids, counts.errors) == (1, 1, 0)
    assert query(data_dir, "SELECT count(*) FROM job") == [(1,)]


async def test_a_value_that_cannot_be_bound_fails_its_own_operation_only(
    database: Database,
) -> None:
    broken = insert_job(make_job(1, model="\ud800"))
    bad, good = database.writer.submit_many([broken, insert_job(make_job(2))])
    results = await asyncio.gather(bad, good, return_exceptions=True)
    assert isinstance(results[0], OperationFailed)
    assert results[1] == Committed()


async def test_when_too_many_wait_nothing_more_is_taken(data_dir: Path) -> None:
    gate = Gate()
    limits = WriterLimits(operations_max=3)
    async with opened(data_dir, gate.hooks(), limits) as database:
        taken = [database.writer.submit(insert_job(make_job(n))) for n in range(3)]
        with pytest.raises(ServerOverloaded) as refused:
            database.writer.submit(insert_job(make_job(3)))
        assert refused.value.retry_after_s
        gate.open.set()
        await asyncio.gather(*taken)
        assert await database.writer.submit(insert_job(make_job(3))) == Committed()


async def test_what_is_at_work_is_taken_however_many_wait(data_dir: Path) -> None:
    gate = Gate()
    async with opened(data_dir, gate.hooks(), WriterLimits(operations_max=3)) as database:
        inserts = [database.writer.submit(insert_job(make_job(n))) for n in range(3)]
        stops = [
            database.writer.submit(request_stop(job_id(n), StopReason.DEADLINE, NOW))
            for n in range(3)
        ]
        gate.open.set()
        assert await asyncio.gather(*inserts, *stops) == [Committed()] * 6


async def test_many_are_taken_whole_or_not_at_all(data_dir: Path) -> None:
    async with opened(data_dir, limits=WriterLimits(operations_max=3)) as database:
        with pytest.raises(ServerOverloaded):
            database.writer.submit_many([insert_job(make_job(n)) for n in range(4)])
        assert database.writer.depth == 0


async def test_a_caller_that_gives_up_does_not_undo_its_operation(
    database: Database, data_dir: Path
) -> None:
    gone = database.writer.submit(insert_job(make_job(1)))
    gone.cancel()
    await database.writer.submit(insert_job(make_job(2)))
    assert query(data_dir, "SELECT count(*) FROM job") == [(2,)]


async def test_lazy_operations_ride_along_with_the_next_that_is_not(database: Database) -> None:
    await start_generation(database)
    before = database.writer.counts.committed.commits
    lazy = database.writer.submit(FrameOperation(GENERATION, 1, lazy=True).build())
    await asyncio.sleep(0)
    assert not lazy.done()
    eager = database.writer.submit(insert_job(make_job()))
    await asyncio.gather(lazy, eager)
    assert database.writer.counts.committed.commits == before + 1


async def test_lazy_operations_wait_no_longer_than_their_limit(database: Database) -> None:
    await start_generation(database)
    lazy = database.writer.submit(FrameOperation(GENERATION, 1, lazy=True).build())
    async with asyncio.timeout(5):
        assert await lazy == Committed()


async def test_what_cannot_be_made_into_an_operation_fails_alone(
    database: Database, data_dir: Path
) -> None:
    class Unbuilt:
        lazy = False
        patient = True

        def build(self) -> Operation:
            raise ValueError("no such thing")

    first = database.writer.submit(insert_job(make_job(1)))
    failing = database.writer.submit(Unbuilt())
    second = database.writer.submit(insert_job(make_job(2)))
    assert (await first, await second) == (Committed(), Committed())
    with pytest.raises(OperationFailed, match="no such thing"):
        await failing
    assert query(data_dir, "SELECT count(*) FROM job") == [(2,)]


async def test_closing_commits_what_waits(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        futures = [database.writer.submit(insert_job(make_job(n))) for n in range(20)]
    assert {future.result() for future in futures} == {Committed()}
    assert query(data_dir, "SELECT count(*) FROM job") == [(20,)]


async def test_after_closing_nothing_is_taken(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        pass
    with pytest.raises(StoreFailed):
        await database.writer.submit(insert_job(make_job()))


async def test_a_clean_close_leaves_no_log_behind(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        await database.writer.submit(insert_job(make_job()))
    assert names_in(data_dir) == ["feed", "lock", "mlxq.db"]


async def test_the_log_is_emptied_when_it_passes_its_size(data_dir: Path) -> None:
    limits = WriterLimits(wal_bytes_max=1_000_000)
    body = bytes(50_000)
    async with opened(data_dir, limits=limits) as database:
        for number in range(100):
            await database.writer.submit(insert_job(make_job(number, request=body)))
        log = database.writer.counts.log
        assert log.checkpoints >= 3
        assert log.wal_bytes < 2_000_000


async def test_the_log_is_emptied_in_an_idle_gap(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        for number in range(200):
            await database.writer.submit(insert_job(make_job(number)))
        counts = database.writer.counts.log
        await asyncio.to_thread(wait_until, lambda: counts.checkpoints, what="a checkpoint")


async def test_a_reader_that_holds_a_snapshot_keeps_the_log_but_stops_no_one(
    data_dir: Path,
) -> None:
    limits = WriterLimits(wal_bytes_max=200_000)
    async with opened(data_dir, limits=limits) as database:
        await database.writer.submit(insert_job(make_job(0)))
        async with database.readers.snapshot() as snapshot:
            await snapshot.rows("SELECT count(*) FROM job", {})
            for number in range(1, 60):
                body = bytes(20_000)
                await database.writer.submit(insert_job(make_job(number, request=body)))
            log = database.writer.counts.log
            assert 0 < log.incomplete_checkpoints < 40
        assert query(data_dir, "SELECT count(*) FROM job") == [(60,)]


async def test_an_error_of_the_file_ends_the_writer_and_acknowledges_nothing(
    data_dir: Path,
) -> None:
    def fail(_driver: Driver, _operations: Sequence[Operation]) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    fatal: list[Exception] = []
    database = await Database.open(
        data_dir, limits=QUICK, hooks=CommitHooks(before_commit=fail), on_fatal=fatal.append
    )
    futures = [database.writer.submit(insert_job(make_job(n))) for n in range(3)]
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert {type(result) for result in results} == {StoreFailed}
    with pytest.raises(StoreFailed):
        await database.writer.submit(insert_job(make_job(9)))
    assert len(fatal) == 1
    await database.close()
    assert query(data_dir, "SELECT count(*) FROM job") == [(0,)]
