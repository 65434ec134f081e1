"""Connections to the database file, and the settings that durability and safety rest on.

Settings are made as a connection is, so that none is ever without them, and read back: SQLite
ignores what it does not know or cannot do, and a network file system silently refuses the
write-ahead log.
"""

import os
import sqlite3
import sys
from pathlib import Path
from typing import Any, Final, Protocol

from app.storage.errors import SettingRefused
from app.storage.padding import PAGE_BYTES

# As they are. The module looks for an adapter of every None and every bytes that is bound, and to
# find none takes it five times as long as to be handed the value back: rows are full of both.
_NOTHING: Final[dict[None, None]] = {}
sqlite3.register_adapter(type(None), _NOTHING.get)
sqlite3.register_adapter(bytes, bytes)

BUSY_TIMEOUT_MS: Final = 5_000
_CACHE_KIB: Final = 65_536
_FULLFSYNC: Final = 1 if sys.platform == "darwin" else 0

_COMMON: Final[dict[str, int | str]] = {
    "busy_timeout": BUSY_TIMEOUT_MS,
    "foreign_keys": 1,
    "temp_store": 2,
    # Only the writer moves the log, between commits.
    "wal_autocheckpoint": 0,
}
_WRITER: Final[dict[str, int | str]] = {
    "journal_mode": "wal",
    "synchronous": 2,
    # On macOS a plain fsync does not reach the platter.
    "fullfsync": _FULLFSYNC,
    "checkpoint_fullfsync": _FULLFSYNC,
    "cache_size": -_CACHE_KIB,
    # What is deleted is overwritten: a prompt that is no longer kept must not be found in the file.
    # Costs nothing that can be measured on inserts and updates of ordinary rows, and up
    # to as much again on a change that rewrites a request of megabytes.
    "secure_delete": 1,
    **_COMMON,
}
_READER: Final[dict[str, int | str]] = {**_COMMON, "cache_size": -16_384, "query_only": 1}


class Cursor(Protocol):
    """What both drivers' cursors have."""

    def execute(self, sql: str, /) -> object: ...
    def fetchone(self) -> Any: ...
    def close(self) -> None: ...


def writer_connection(path: Path) -> sqlite3.Connection:
    """A read-write connection for the calling thread. Transactions are begun by hand.

    It is the driver's own: statements are fixed texts run many rows at a time, for which Core has
    nothing to add.
    """
    driver = sqlite3.connect(path, isolation_level=None)
    try:
        set_for_writing(driver.cursor())
    except BaseException:
        driver.close()
        raise
    return driver


def set_for_writing(cursor: Cursor) -> None:
    """Make the writer's settings on a new connection, and see that SQLite took them.

    Raises:
        SettingRefused: it did not.
    """
    _apply(cursor, _WRITER)


def reader_connection(path: Path) -> sqlite3.Connection:
    """A connection for the calling thread that SQLite itself keeps from writing. Its rows know
    their columns by name."""
    driver = sqlite3.connect(path, isolation_level=None)
    try:
        _apply(driver.cursor(), _READER)
    except BaseException:
        driver.close()
        raise
    driver.row_factory = sqlite3.Row
    return driver


def create_file(path: Path) -> None:
    """Make an empty database file that only this user can read, with the settings that must be
    made before its first table. One that holds anything is left alone."""
    if path.exists() and path.stat().st_size:
        return
    path.touch(0o600)
    driver = sqlite3.connect(path, isolation_level=None)
    try:
        driver.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        driver.execute("PRAGMA auto_vacuum = INCREMENTAL")
        driver.execute("PRAGMA journal_mode = WAL")
    finally:
        driver.close()
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """See that the new file's name survives a power cut, too."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _apply(cursor: Cursor, settings: dict[str, int | str]) -> None:
    for name, value in settings.items():
        cursor.execute(f"PRAGMA {name} = {value}")
        cursor.execute(f"PRAGMA {name}")
        _check(name, value, cursor.fetchone())
    cursor.close()


def _check(name: str, wanted: int | str, row: tuple[int | str] | None) -> None:
    if row is None or row[0] != wanted:
        raise SettingRefused(f"SQLite has {name} = {row and row[0]}, not {wanted}")
