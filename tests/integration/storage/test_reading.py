"""Reading beside the writer: who stops in the middle leaves nothing behind."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from app.storage.operations import Operation
from app.storage.tables import job
from tests.integration.storage.making import opened

TURNS = 12
"""More than a read takes of the loop."""


def log_can_be_emptied(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as driver:
        ((busy, _, _),) = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return busy == 0


async def test_a_read_that_is_cancelled_at_any_moment_keeps_no_snapshot(tmp_path: Path) -> None:
    async with opened(tmp_path / "data") as database:
        for turns in range(TURNS):
            reading = asyncio.ensure_future(database.readers.rows(sa.select(job.c.id)))
            for _ in range(turns):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            await database.writer.submit(Operation(name="nothing", subjects=(), steps=()))
            assert log_can_be_emptied(database.path), f"after {turns} turns"
