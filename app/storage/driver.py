"""What the writer needs of a connection.

The server's own is the standard library's (``connections.writer_connection``). A test gives one to
a disk that loses what was not synced, and everything above this line is the shipped code.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from app.storage.operations import Value

Bindings: TypeAlias = Sequence[Value] | Mapping[str, Value]


class Rows(Protocol):
    """What a statement came to. ``rowcount`` counts the rows it changed, over all its bindings."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Driver(Protocol):
    """A read-write connection on which transactions are begun by hand.

    What goes wrong is a ``sqlite3.Error`` with SQLite's code in ``sqlite_errorcode``. Neither
    ``rollback``, which does nothing outside a transaction, nor ``close`` needs the disk.
    """

    def execute(self, sql: str, parameters: Bindings = ..., /) -> Rows: ...
    def executemany(self, sql: str, parameters: Sequence[Bindings], /) -> Rows: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


Connect: TypeAlias = Callable[[Path], Driver]
"""Opens the database file read-write, with every setting that durability rests on."""
