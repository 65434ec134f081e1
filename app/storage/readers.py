"""Reading: a few connections that cannot write, each read in a snapshot of its own."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Executable, RowMapping
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.storage.connections import reader_engine
from app.storage.errors import StoreDamaged, Trouble, trouble

T = TypeVar("T")

_NOT_TEXT = "Could not decode to UTF-8"
"""How the driver begins to say that a text column holds none."""


async def undisturbed(read: Coroutine[Any, Any, T]) -> T:
    """What this reads. Who is cancelled meanwhile is so once it has been read: a connection that is
    let go of in the middle keeps its snapshot, and with it the log from being emptied."""
    task = asyncio.get_running_loop().create_task(read)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # nobody waits for it any more
        raise


class Readers:
    """The store's readers. What is not committed is not seen. ``reads`` counts snapshots."""

    def __init__(self, engine: AsyncEngine, path: Path) -> None:
        self._engine = engine
        self.path = path
        self.reads = 0

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[AsyncConnection]:
        """A connection on which all reads see the store at one moment. Keep it short: while it
        lasts the write-ahead log cannot be emptied past it.

        Raises:
            StoreDamaged: what is to be read cannot be.
        """
        self.reads += 1
        try:
            async with self._engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            if _damaged(error.orig):
                raise StoreDamaged(f"the database is damaged: {error.orig}") from error
            raise
        except UnicodeDecodeError as error:  # SQLite's own words quote what is damaged
            raise StoreDamaged(f"the database is damaged: {error}") from error

    async def rows(self, query: Executable) -> Sequence[RowMapping]:
        """All rows of a query, by column name."""
        return await undisturbed(self._rows(query))

    async def row(self, query: Executable) -> RowMapping | None:
        """The first row of a query, or None."""
        return await undisturbed(self._row(query))

    async def value(self, query: Executable) -> Any:
        """The first column of the first row, or None."""
        row = await self.row(query)
        return None if row is None else next(iter(row.values()))

    async def _rows(self, query: Executable) -> Sequence[RowMapping]:
        async with self.snapshot() as connection:
            return (await connection.execute(query)).mappings().all()

    async def _row(self, query: Executable) -> RowMapping | None:
        async with self.snapshot() as connection:
            return (await connection.execute(query)).mappings().first()

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()


def readers_of(path: Path) -> Readers:
    """The readers of this file."""
    return Readers(reader_engine(path), path)


def _damaged(error: BaseException | None) -> bool:
    if not isinstance(error, sqlite3.Error):
        return False
    return trouble(error) is Trouble.FATAL or str(error).startswith(_NOT_TEXT)
