"""What can go wrong with the store itself. None of these is a lost race: that is ``Void``."""

import sqlite3
from enum import Enum, auto
from pathlib import Path
from typing import Final


class StoreError(Exception):
    """The store could not do what it was asked."""


class StoreFull(StoreError):
    """The disk is full: nothing was written. The caller may be told 507."""


class StoreFailed(StoreError):
    """The store can no longer be written; nothing waiting was acknowledged."""


class OperationFailed(StoreError):
    """One operation is wrong in itself and was undone; its neighbours were not touched.

    ``statement`` and ``subject`` name the step at fault.
    """

    def __init__(self, operation: str, statement: str, subject: str, cause: str) -> None:
        super().__init__(f"{operation}: {statement} of {subject or 'nothing'}: {cause}")
        self.operation = operation
        self.statement = statement
        self.subject = subject


class AlreadyRunning(StoreError):
    """Another parent holds the data directory."""

    def __init__(self, data_dir: Path, holder: str) -> None:
        super().__init__(f"{data_dir} is in use by {holder}")
        self.holder = holder


class SchemaTooNew(StoreError):
    """The database was written by a newer version of this program."""


class OtherSchema(StoreError):
    """The database has not this program's schema, so nothing can be said about it."""

    def __init__(self, found: int, ours: int) -> None:
        super().__init__(f"it has schema {found} and this program {ours}")
        self.found = found
        self.ours = ours


class NotOurDatabase(StoreError):
    """The file is a database, but of another program."""


class SettingRefused(StoreError):
    """SQLite did not take a setting that durability or safety rests on."""


class StoreDamaged(StoreError):
    """The database file failed its check at start."""


class MigrationFailed(StoreError):
    """A migration would have lost rows or broken references; the database is as it was."""


class PayloadDamaged(StoreError):
    """A stored payload does not match its checksum."""

    def __init__(self, table: str, key: str) -> None:
        super().__init__(f"{table} {key} does not match its checksum")
        self.table = table
        self.key = key


class Trouble(Enum):
    """What an SQLite error means for the writer."""

    STATEMENT = auto()
    """One operation's own fault: replay one by one."""
    FULL = auto()
    """No space: everything waits."""
    BUSY = auto()
    """Another process holds the file: everything waits."""
    FATAL = auto()
    """The file or the disk is broken: the parent must end."""


_PRIMARY: Final = 0xFF
_BY_CODE: Final = {
    # No room for the log's index: the only I/O error that a full disk makes.
    sqlite3.SQLITE_IOERR_SHMSIZE: Trouble.FULL,
    sqlite3.SQLITE_FULL: Trouble.FULL,
    sqlite3.SQLITE_BUSY: Trouble.BUSY,
    sqlite3.SQLITE_LOCKED: Trouble.BUSY,
    sqlite3.SQLITE_IOERR: Trouble.FATAL,
    sqlite3.SQLITE_CORRUPT: Trouble.FATAL,
    sqlite3.SQLITE_NOTADB: Trouble.FATAL,
    sqlite3.SQLITE_CANTOPEN: Trouble.FATAL,
    sqlite3.SQLITE_READONLY: Trouble.FATAL,
    sqlite3.SQLITE_PROTOCOL: Trouble.FATAL,
    sqlite3.SQLITE_NOMEM: Trouble.FATAL,
}


def trouble(error: sqlite3.Error) -> Trouble:
    """What this error means, by its result code."""
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(code, int):
        return Trouble.STATEMENT
    return _BY_CODE.get(code, _BY_CODE.get(code & _PRIMARY, Trouble.STATEMENT))
