"""Reading: a few connections that cannot write, each read in a snapshot of its own."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import aiosqlite
from typing_extensions import override

from app.storage.connections import reader_connection
from app.storage.errors import StoreDamaged, Trouble, trouble
from app.storage.operations import Params

READERS: Final = 4
"""Reads that go on at a time, each on a connection of its own; others wait their turn."""

_FETCHED_AT_ONCE: Final = 64
_NOT_TEXT: Final = "Could not decode to UTF-8"
"""How the driver begins to say that a text column holds none."""


class Snapshot(Protocol):
    """The store at one moment."""

    async def rows(self, sql: str, params: Params, /) -> Sequence[sqlite3.Row]:
        """All rows of a query with these parameters, by column name."""
        ...


class Readers:
    """The store's readers. What is not committed is not seen. ``reads`` counts snapshots.

    Who is cancelled while it reads is so at once, and leaves nothing behind: what it was reading is
    broken off, since a snapshot that is kept keeps the log from being emptied.

    Whatever reads raises ``StoreDamaged`` when what is to be read cannot be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reads = 0
        self._places = asyncio.Semaphore(READERS)
        self._idle: list[_Connection] = []
        self._closed = False

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot]:
        """All reads in it see the store at one moment. Keep it short: while it lasts the
        write-ahead log cannot be emptied past it."""
        async with self._connection() as connection:
            await connection.execute("BEGIN")
            yield connection
            await connection.rollback()

    async def rows(self, sql: str, params: Params | None = None) -> Sequence[sqlite3.Row]:
        """All rows of a query with these parameters, by column name."""
        async with self._connection() as connection:
            return await connection.rows(sql, params or {})

    async def row(self, sql: str, params: Params | None = None) -> sqlite3.Row | None:
        """The first row of a query, or None."""
        rows = await self.rows(sql, params)
        return rows[0] if rows else None

    async def value(self, sql: str, params: Params | None = None) -> Any:
        """The first column of the first row, or None."""
        row = await self.row(sql, params)
        return None if row is None else row[0]

    async def close(self) -> None:
        """Close all connections; one that still reads, when it has."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()

    @asynccontextmanager
    async def _connection(self) -> "AsyncGenerator[_Connection]":
        """One that nobody else uses meanwhile."""
        self.reads += 1
        async with self._places:
            connection = self._idle.pop() if self._idle else await _Connection(self.path)
            try:
                with _damage_told():
                    yield connection
            except BaseException:
                await connection.leave()
                raise
            finally:
                await self._take_back(connection)

    async def _take_back(self, connection: "_Connection") -> None:
        if self._closed:
            await connection.close()
        else:
            self._idle.append(connection)


class _Connection(aiosqlite.Connection):
    """A connection, and the thread that it works in. What it is asked it does in order, also for
    who does not wait for it any more."""

    def __init__(self, path: Path) -> None:
        super().__init__(partial(reader_connection, path), _FETCHED_AT_ONCE)
        self._thread.daemon = True  # a process that must end does not wait for it

    @override
    def __await__(self) -> "Generator[Any, None, _Connection]":
        yield from super().__await__()
        return self

    async def rows(self, sql: str, params: Params, /) -> Sequence[sqlite3.Row]:
        """All rows of a query."""
        return list(await self.execute_fetchall(sql, params))

    async def leave(self) -> None:
        """Break off what it does, and give up its snapshot, if it has one."""
        await self.interrupt()
        await self.rollback()


@contextmanager
def _damage_told() -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if _damaged(error):
            raise StoreDamaged(f"the database is damaged: {error}") from error
        raise
    except UnicodeDecodeError as error:  # SQLite's own words quote what is damaged
        raise StoreDamaged(f"the database is damaged: {error}") from error


def _damaged(error: sqlite3.Error) -> bool:
    return trouble(error) is Trouble.FATAL or str(error).startswith(_NOT_TEXT)
