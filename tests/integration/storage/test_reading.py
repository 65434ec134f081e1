"""Reading beside the writer: who stops in the middle leaves nothing behind."""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, closing
from typing import Any, TypeAlias

import aiosqlite
import pytest

from app.storage.compaction import move_cursor
from app.storage.database import Database
from app.storage.jobs import insert_job
from app.storage.readers import READERS, Readers
from tests.integration.storage.making import NOW, make_job

COUNT = "SELECT count(*) FROM job"
ENDLESS = (
    "SELECT began() FROM job UNION ALL"
    " SELECT count(*) FROM (WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x FROM n)"
    " SELECT x FROM n)"
)

Read: TypeAlias = Callable[[Readers], Coroutine[Any, Any, object]]


async def alone(readers: Readers) -> object:
    return await readers.rows(ENDLESS)


async def after_another(readers: Readers) -> object:
    async with readers.snapshot() as snapshot:
        await snapshot.rows(COUNT, {})
        return await snapshot.rows(ENDLESS, {})


async def in_one_snapshot(readers: Readers) -> object:
    async with readers.snapshot() as snapshot:
        await snapshot.rows(COUNT, {})
        return await snapshot.rows(COUNT, {})


async def in_one_statement(readers: Readers) -> object:
    return await readers.rows(COUNT)


async def of_nothing(readers: Readers) -> None:
    async with readers.snapshot() as snapshot:
        await snapshot.rows(COUNT, {})
        await snapshot.rows("SELECT * FROM missing", {})


async def told(readers: Readers) -> asyncio.Event:
    """Set when ``ENDLESS`` has begun on the one connection that there is."""
    loop, began = asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:
        loop.call_soon_threadsafe(began.set)

    async with readers.snapshot() as connection:
        given: Any = connection
        await given.create_function("began", 0, tell)
    return began


async def is_read(database: Database, patience_s: float = 5) -> bool:
    """Whether some reader still keeps the log from being emptied."""
    await database.writer.submit(move_cursor(NOW))
    with closing(sqlite3.connect(database.path, timeout=patience_s)) as connection:
        connection.execute("SELECT * FROM meta").fetchall()  # now it knows the log
        ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return bool(busy)


async def all_at_once(readers: Readers) -> list[Any]:
    """What as many reads as may go on at a time read."""
    return await asyncio.gather(*(readers.value(COUNT) for _ in range(READERS)))


@pytest.mark.parametrize("read", [alone, after_another])
async def test_who_is_cancelled_in_the_middle_of_a_read_breaks_it_off(
    database: Database, read: Read
) -> None:
    await database.writer.submit(insert_job(make_job(1)))
    began = await told(database.readers)
    reading = asyncio.ensure_future(read(database.readers))
    await began.wait()
    assert await is_read(database, 0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not await is_read(database)
    await database.writer.submit(insert_job(make_job(2)))
    assert await all_at_once(database.readers) == [2] * READERS


@pytest.mark.parametrize("read", [in_one_statement, in_one_snapshot])
async def test_whenever_a_read_is_cancelled_it_leaves_no_snapshot(
    database: Database, read: Read
) -> None:
    await database.writer.submit(insert_job(make_job(1)))
    turns, over = 0, False
    while not over:
        reading = asyncio.ensure_future(read(database.readers))
        for _ in range(turns):
            await asyncio.sleep(0)
        over = reading.done() and bool(await reading)
        reading.cancel()
        await asyncio.wait([reading])
        assert not await is_read(database), turns
        turns += 1 + turns // 8
    assert await all_at_once(database.readers) == [1] * READERS


async def test_who_is_cancelled_while_it_waits_its_turn_takes_nobodys(database: Database) -> None:
    async with AsyncExitStack() as held:
        for _ in range(READERS):
            await held.enter_async_context(database.readers.snapshot())
        waiting = asyncio.ensure_future(database.readers.value(COUNT))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert await all_at_once(database.readers) == [0] * READERS


async def test_what_goes_wrong_in_a_snapshot_ends_it(database: Database) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await of_nothing(database.readers)
    assert not await is_read(database)


async def test_a_connection_that_still_reads_is_closed_when_it_has(database: Database) -> None:
    async with database.readers.snapshot() as snapshot:
        await database.readers.close()
        assert len(await snapshot.rows(COUNT, {})) == 1
    assert isinstance(snapshot, aiosqlite.Connection)
    with pytest.raises(ValueError, match="closed"):
        await snapshot.rows(COUNT, {})
