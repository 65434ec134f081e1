"""The store as a whole: opened by one parent, with its writer and its readers.

``<data_dir>/mlxq.db`` with its log beside it; ``<data_dir>/lock`` says who has it open, and
``<data_dir>/ballast`` keeps room for a disk that is full.
"""

import asyncio
import errno
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, Self

from app.storage import schema
from app.storage.ballast import Ballast
from app.storage.committing import CommitHooks
from app.storage.connections import create_file, writer_connection
from app.storage.driver import Connect
from app.storage.errors import StoreDamaged, StoreFull, Trouble, trouble
from app.storage.feed_mark import FeedMark
from app.storage.identity import Identity, next_start
from app.storage.limits import WriterLimits
from app.storage.lock import DirectoryLock
from app.storage.readers import Readers
from app.storage.room import Room
from app.storage.writer import Writer
from app.storage.writer_thread import WriterThread

DATABASE_NAME: Final = "mlxq.db"
LOCK_NAME: Final = "lock"
BALLAST_NAME: Final = "ballast"


@dataclass(frozen=True, slots=True)
class _Prepared:
    lock: DirectoryLock
    identity: Identity
    backup: Path | None
    has_room: bool


class Database:
    """An open store. Created by ``open``; ``close`` commits what waits.

    Attributes:
        store_id: names this store for good.
        parent_epoch: one higher at each open.
        feed_epoch: names the feed's numbering; renewed by a restore.
        backup: the copy made before a migration, if there was one.
        room: whether there is room on the disk.
    """

    def __init__(
        self, prepared: _Prepared, path: Path, writer: Writer, room: Room, readers: Readers
    ) -> None:
        self._lock = prepared.lock
        self.room = room
        self.path = path
        self.store_id = prepared.identity.store_id
        self.parent_epoch = prepared.identity.parent_epoch
        self.feed_epoch = prepared.identity.feed_epoch
        self.backup = prepared.backup
        self.writer = writer
        self.readers = readers

    @classmethod
    async def open(
        cls,
        data_dir: Path,
        *,
        limits: WriterLimits | None = None,
        hooks: CommitHooks | None = None,
        ballast: Ballast | int = 0,
        connect: Connect = writer_connection,
        thread: type[WriterThread] = WriterThread,
        readers: Callable[[Path], Readers] = Readers,
        on_full: Callable[[bool], None] = lambda _full: None,
        on_fatal: Callable[[Exception], None] = lambda _error: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> Self:
        """Open the store in ``data_dir``, made if need be; migrate it if one is pending.

        Args:
            data_dir: a directory of this user; one parent at a time has it.
            limits: bounds of the writer.
            hooks: called around each commit.
            ballast: bytes to keep on the disk for when it is full, or what keeps them.
            connect: makes the writer's connection, in whichever thread is to use it.
            thread: what commits.
            readers: makes the readers.
            on_full: told True when the disk is full and False when there is room again.
            on_fatal: told when the store can no longer be written: the parent must end.
            now: aware UTC.

        Raises:
            AlreadyRunning: another process has it open; says which.
            NotOurDatabase, SchemaTooNew, StoreDamaged, MigrationFailed, SettingRefused: it cannot
                be opened as it is.
            StoreFull: the disk is full, and there was no ballast to drop.
        """
        path = data_dir / DATABASE_NAME
        if isinstance(ballast, int):
            ballast = Ballast(data_dir / BALLAST_NAME, ballast)
        prepared = await asyncio.to_thread(_prepare, data_dir, path, now(), ballast, connect)
        room = Room(ballast, on_full)
        writer = Writer(
            partial(connect, path),
            path.with_name(f"{path.name}-wal"),
            limits or WriterLimits(),
            FeedMark(path).following(hooks or CommitHooks()),
            on_full=room.full,
            on_fatal=on_fatal,
            thread=thread,
        )
        try:
            await writer.start()
        except BaseException:
            prepared.lock.release()
            raise
        room.start(writer, stands=prepared.has_room)
        return cls(prepared, path, writer, room, readers(path))

    async def close(self) -> None:
        """Commit what waits and close. The readers go first: the last connection to close empties
        the log, and that must be the writer."""
        self.room.close()
        await self.readers.close()
        await self.writer.close()
        self._lock.release()


def _prepare(
    data_dir: Path, path: Path, now: datetime, ballast: Ballast, connect: Connect
) -> _Prepared:
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = DirectoryLock.take(data_dir / LOCK_NAME, data_dir, now)
    try:
        identity, backup = _ready_with_room(path, now, ballast, connect)
        return _Prepared(lock, identity, backup, ballast.make())
    except BaseException:
        lock.release()
        raise


def _ready_with_room(
    path: Path, now: datetime, ballast: Ballast, connect: Connect
) -> tuple[Identity, Path | None]:
    """Ready the file; when the disk is too full for it, once more without the ballast."""
    try:
        return _ready(path, now, connect)
    except (OSError, sqlite3.Error) as error:
        if not _no_room(error):
            raise
        ballast.drop()
    try:
        return _ready(path, now, connect)
    except (OSError, sqlite3.Error) as error:
        if _no_room(error):
            raise StoreFull(f"the disk of {path.parent} is full") from error
        raise


def _ready(path: Path, now: datetime, connect: Connect) -> tuple[Identity, Path | None]:
    """Make the file if need be, check it, bring it to this program's schema, count the start."""
    _refuse_emptied(path)
    create_file(path)
    try:
        return _checked(path, now, connect)
    except UnicodeDecodeError as error:  # SQLite's own words quote what is damaged
        raise StoreDamaged(f"{schema.DAMAGED} ({error})") from error


def _checked(path: Path, now: datetime, connect: Connect) -> tuple[Identity, Path | None]:
    with closing(connect(path)) as driver:
        schema.check(driver)
        if not schema.pending(driver):
            return next_start(driver, path), None
    # Alembic works on the standard library's driver.
    with closing(writer_connection(path)) as driver:
        backup = schema.migrate(driver, path, now)
        return next_start(driver, path), backup


def _refuse_emptied(path: Path) -> None:
    """A file of no bytes is how SQLite begins, but not beside a feed that has reports in it.

    Raises:
        StoreDamaged: it was emptied.
    """
    mark = FeedMark(path).read()
    if mark is not None and mark.last and path.is_file() and not path.stat().st_size:
        raise StoreDamaged(
            f"{path} is empty, but reports were written to it: restore a backup of it, or remove it"
            " and the file 'feed' beside it to begin anew"
        )


def _no_room(error: OSError | sqlite3.Error) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOSPC
    return trouble(error) is Trouble.FULL
