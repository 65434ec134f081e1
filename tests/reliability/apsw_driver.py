"""The writer's connection on APSW, whose VFS can be written in Python.

It keeps its index in memory instead of in a shared file, which a VFS in Python cannot offer: the
connection must have the file for itself. All else is as ``app.storage.connections`` has it.
"""

import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from app.storage.connections import set_for_writing
from app.storage.driver import Bindings


class Result:
    """The rows of a statement, all read, and how many it changed."""

    def __init__(self, rows: list[Any], changed: int) -> None:
        self.rowcount = changed
        self._rows = rows

    def fetchone(self) -> Any:
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())


class ApswDriver:
    """What ``app.storage.driver.Driver`` asks for."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Bindings = (), /) -> Result:
        with _as_the_standard_library():
            rows = self._connection.execute(sql, parameters).fetchall()
            return Result(rows, self._connection.changes())

    def executemany(self, sql: str, parameters: Sequence[Bindings], /) -> Result:
        changed = sum(self.execute(sql, one).rowcount for one in parameters)
        return Result([], changed)

    def rollback(self) -> None:
        if self._connection.in_transaction:
            with suppress(apsw.Error):
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        with suppress(apsw.Error):
            self._connection.close(force=True)


def connect(path: Path, vfs: str, *, synchronous: bool = True) -> ApswDriver:
    """A connection with the writer's own settings, through this VFS.

    Args:
        synchronous: as the product has it; False is what the suite must find out.
    """
    with _as_the_standard_library():
        connection: Any = apsw.Connection(str(path), vfs=vfs)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
            set_for_writing(connection.cursor())
            if not synchronous:
                connection.execute("PRAGMA synchronous = OFF").fetchall()
        except BaseException:
            with suppress(apsw.Error):
                connection.close(force=True)
            raise
    return ApswDriver(connection)


@contextmanager
def _as_the_standard_library() -> Generator[None]:
    """Errors as ``sqlite3`` has them: the writer tells them apart by their code."""
    try:
        yield
    except apsw.Error as error:
        kind = (
            sqlite3.IntegrityError
            if isinstance(error, apsw.ConstraintError)
            else sqlite3.OperationalError
        )
        translated = kind(str(error))
        translated.sqlite_errorcode = getattr(error, "extendedresult", apsw.SQLITE_ERROR)
        raise translated from error
