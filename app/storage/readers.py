"""Reading: a few connections that cannot write, each read in a snapshot of its own."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Executable, RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.storage.connections import reader_engine


class Readers:
    """The store's readers. What is not committed is not seen. ``reads`` counts snapshots."""

    def __init__(self, engine: AsyncEngine, path: Path) -> None:
        self._engine = engine
        self.path = path
        self.reads = 0

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[AsyncConnection]:
        """A connection on which all reads see the store at one moment. Keep it short: while it
        lasts the write-ahead log cannot be emptied past it."""
        self.reads += 1
        async with self._engine.begin() as connection:
            yield connection

    async def rows(self, query: Executable) -> Sequence[RowMapping]:
        """All rows of a query, by column name."""
        async with self.snapshot() as connection:
            return (await connection.execute(query)).mappings().all()

    async def row(self, query: Executable) -> RowMapping | None:
        """The first row of a query, or None."""
        async with self.snapshot() as connection:
            return (await connection.execute(query)).mappings().first()

    async def value(self, query: Executable) -> Any:
        """The first column of the first row, or None."""
        async with self.snapshot() as connection:
            return (await connection.execute(query)).scalar()

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()


def readers_of(path: Path) -> Readers:
    """The readers of this file."""
    return Readers(reader_engine(path), path)
