"""The store as a whole: opened by one parent, with its writer and its readers.

``<data_dir>/mlxq.db`` with its log beside it; ``<data_dir>/lock`` says who has it open.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, Self

from app.storage import schema
from app.storage.committing import CommitHooks
from app.storage.connections import create_file, reader_engine, writer_connection
from app.storage.identity import Identity, next_start
from app.storage.limits import WriterLimits
from app.storage.lock import DirectoryLock
from app.storage.readers import Readers
from app.storage.writer import Writer

DATABASE_NAME: Final = "mlxq.db"
LOCK_NAME: Final = "lock"


@dataclass(frozen=True, slots=True)
class _Prepared:
    lock: DirectoryLock
    identity: Identity
    backup: Path | None


class Database:
    """An open store. Created by ``open``; ``close`` commits what waits.

    Attributes:
        store_id: names this store for good.
        parent_epoch: one higher at each open.
        feed_epoch: names the feed's numbering; renewed by a restore.
        backup: the copy made before a migration, if there was one.
    """

    def __init__(self, prepared: _Prepared, path: Path, writer: Writer) -> None:
        self._lock = prepared.lock
        self.path = path
        self.store_id = prepared.identity.store_id
        self.parent_epoch = prepared.identity.parent_epoch
        self.feed_epoch = prepared.identity.feed_epoch
        self.backup = prepared.backup
        self.writer = writer
        self.readers = Readers(reader_engine(path), path)

    @classmethod
    async def open(
        cls,
        data_dir: Path,
        *,
        limits: WriterLimits | None = None,
        hooks: CommitHooks | None = None,
        on_full: Callable[[bool], None] = lambda _full: None,
        on_fatal: Callable[[Exception], None] = lambda _error: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> Self:
        """Open the store in ``data_dir``, made if need be; migrate it if one is pending.

        Args:
            data_dir: a directory of this user; one parent at a time has it.
            limits: bounds of the writer.
            hooks: called around each commit.
            on_full: told True when the disk is full and False when it no longer is.
            on_fatal: told when the store can no longer be written: the parent must end.
            now: aware UTC.

        Raises:
            AlreadyRunning: another process has it open; says which.
            NotOurDatabase, SchemaTooNew, StoreDamaged, MigrationFailed, SettingRefused: it cannot
                be opened as it is.
        """
        path = data_dir / DATABASE_NAME
        prepared = await asyncio.to_thread(_prepare, data_dir, path, now())
        writer = Writer(
            partial(writer_connection, path),
            path.with_name(f"{path.name}-wal"),
            limits or WriterLimits(),
            hooks or CommitHooks(),
            on_full=on_full,
            on_fatal=on_fatal,
        )
        try:
            await writer.start()
        except BaseException:
            prepared.lock.release()
            raise
        return cls(prepared, path, writer)

    async def close(self) -> None:
        """Commit what waits and close. The readers go first: the last connection to close empties
        the log, and that must be the writer."""
        await self.readers.close()
        await self.writer.close()
        self._lock.release()


def _prepare(data_dir: Path, path: Path, now: datetime) -> _Prepared:
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = DirectoryLock.take(data_dir / LOCK_NAME, data_dir, now)
    try:
        create_file(path)
        with closing(writer_connection(path)) as driver:
            backup = _ready(driver, path, now)
            return _Prepared(lock, next_start(driver), backup)
    except BaseException:
        lock.release()
        raise


def _ready(driver: sqlite3.Connection, path: Path, now: datetime) -> Path | None:
    schema.check(driver)
    return schema.migrate(driver, path, now) if schema.pending(driver) else None
