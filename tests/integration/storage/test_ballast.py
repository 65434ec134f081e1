"""A disk that is full: what the ballast keeps room for, and when it stands again."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from typing_extensions import override

from app.storage import database as database_module
from app.storage import room
from app.storage.ballast import Ballast
from app.storage.committing import CommitHooks
from app.storage.database import BALLAST_NAME, Database
from app.storage.driver import Driver
from app.storage.errors import StoreFull, Trouble, trouble
from app.storage.frames import FrameOperation
from app.storage.identity import Identity, next_start
from app.storage.jobs import insert_job
from app.storage.operations import Committed, Operation, Outcome
from tests.integration.storage.making import (
    GENERATION,
    NOW,
    QUICK,
    make_job,
    query,
    start_generation,
)
from tests.waiting import wait_until

SIZE: Final = 1 << 20
PAGE: Final = 4096
BIG: Final = bytes(SIZE // 2)


class SmallDisk(Ballast):
    """A disk of which the database has the rest: with ``left`` bytes of it, and what the ballast
    takes once that is gone. ``filled`` says that others have taken all else."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir / BALLAST_NAME, SIZE)
        self.filled = False
        self._pages = 0

    @property
    @override
    def free_bytes(self) -> int:
        return 0 if self.filled else super().free_bytes

    def fill(self, data_dir: Path) -> None:
        """Not another page, but for the ballast's."""
        ((self._pages,),) = query(data_dir, "PRAGMA page_count")
        self.filled = True

    def limit(self, driver: Driver, _operations: Sequence[Operation]) -> None:
        pages = self._pages + (0 if self._path.exists() else SIZE // PAGE)
        driver.execute(f"PRAGMA max_page_count = {pages if self.filled else 2**30}").fetchall()


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "LOOK_S", 0.01)


@asynccontextmanager
async def opened(data_dir: Path, disk: Ballast, told: list[bool]) -> AsyncGenerator[Database]:
    hooks = CommitHooks(before_begin=disk.limit) if isinstance(disk, SmallDisk) else None
    database = await Database.open(
        data_dir, limits=QUICK, hooks=hooks, ballast=disk, on_full=told.append, now=lambda: NOW
    )
    try:
        yield database
    finally:
        await database.close()


def grow(number: int) -> Operation:
    """A patient operation that needs room."""
    operation = insert_job(make_job(number, request=BIG))
    return Operation(name="grow", subjects=operation.subjects, steps=operation.steps)


async def until(told: list[bool], *wanted: bool) -> None:
    await asyncio.to_thread(wait_until, lambda: told == list(wanted), what=f"{wanted}")


def test_the_ballast_takes_up_real_room_and_gives_it_back(tmp_path: Path) -> None:
    ballast = Ballast(tmp_path / "ballast", SIZE)
    assert not ballast.stands
    assert ballast.make()
    assert ballast.stands
    assert (tmp_path / "ballast").stat().st_blocks * 512 >= SIZE
    ballast.drop()
    ballast.drop()
    assert not ballast.stands


def test_a_hole_of_the_same_size_is_no_ballast(tmp_path: Path) -> None:
    with (tmp_path / "ballast").open("wb") as file:
        file.truncate(SIZE)
    ballast = Ballast(tmp_path / "ballast", SIZE)
    assert not ballast.stands
    assert ballast.make()
    assert (tmp_path / "ballast").stat().st_blocks * 512 >= SIZE


def test_it_is_not_made_where_others_would_have_no_room_left(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path)
    disk.filled = True
    assert not disk.make()
    assert not (tmp_path / BALLAST_NAME).exists()


async def test_what_is_at_work_is_recorded_in_the_ballasts_room_and_new_work_is_not(
    data_dir: Path,
) -> None:
    disk, told = SmallDisk(data_dir), list[bool]()
    async with opened(data_dir, disk, told) as database:
        await start_generation(database)
        disk.fill(data_dir)
        at_work: list[asyncio.Future[Outcome]] = [database.writer.submit(grow(1))]
        frames = [FrameOperation(GENERATION, seq).build() for seq in range(1, 4)]
        at_work += database.writer.submit_many(frames)
        assert await asyncio.gather(*at_work) == [Committed()] * 4
        assert told == [True]
        assert not (data_dir / BALLAST_NAME).exists()
        assert not database.writer.full
        assert database.room.short
        with pytest.raises(StoreFull):
            await database.writer.submit(insert_job(make_job(2)))
        disk.filled = False
        await until(told, True, False)
        assert disk.stands
        assert await database.writer.submit(insert_job(make_job(3))) == Committed()


async def test_on_a_full_disk_the_log_is_written_again_from_its_beginning(data_dir: Path) -> None:
    disk, told = SmallDisk(data_dir), list[bool]()
    async with opened(data_dir, disk, told) as database:
        before = database.writer.counts.log.checkpoints
        disk.fill(data_dir)
        assert await database.writer.submit(grow(1)) == Committed()
        assert database.writer.counts.log.checkpoints > before


def test_no_room_for_the_logs_index_is_a_full_disk_and_no_broken_one() -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    assert trouble(error) is Trouble.FULL
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    assert trouble(error) is Trouble.FATAL


async def test_nobody_looks_for_room_while_the_ballast_stands(data_dir: Path) -> None:
    disk, told = Ballast(data_dir / BALLAST_NAME, SIZE), list[bool]()
    async with opened(data_dir, disk, told) as database:
        assert disk.stands
        assert database.room._timer is None
        assert not told


async def test_a_start_without_ballast_and_without_room_takes_no_new_work(data_dir: Path) -> None:
    disk, told = SmallDisk(data_dir), list[bool]()
    disk.fill(data_dir)
    async with opened(data_dir, disk, told) as database:
        assert told == [True]
        with pytest.raises(StoreFull):
            await database.writer.submit(insert_job(make_job()))
        disk.filled = False
        await until(told, True, False)
        assert await database.writer.submit(insert_job(make_job())) == Committed()


async def test_without_a_ballast_only_a_disk_that_is_full_refuses(data_dir: Path) -> None:
    assert Ballast(data_dir / BALLAST_NAME, SIZE).make()  # by an earlier start
    async with opened(data_dir, Ballast(data_dir / BALLAST_NAME, 0), []) as database:
        assert await database.writer.submit(insert_job(make_job())) == Committed()
    assert not (data_dir / BALLAST_NAME).exists()


def full_until_dropped(ballast: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room for the start's own record, but for the ballast's."""

    def start(driver: sqlite3.Connection, path: Path) -> Identity:
        if ballast.exists():
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return next_start(driver, path)

    monkeypatch.setattr(database_module, "next_start", start)


async def test_a_start_on_a_full_disk_drops_the_ballast(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, told = SmallDisk(data_dir), list[bool]()
    assert disk.make()
    disk.fill(data_dir)
    full_until_dropped(data_dir / BALLAST_NAME, monkeypatch)
    async with opened(data_dir, disk, told) as database:
        assert database.room.short
        assert told == [True]
        assert await database.writer.submit(grow(1)) == Committed()


async def test_a_start_on_a_full_disk_with_nothing_to_drop_says_so(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = data_dir  # always there, as a disk that stays full
    full_until_dropped(lock, monkeypatch)
    with pytest.raises(StoreFull, match=f"the disk of {data_dir} is full"):
        await Database.open(data_dir, ballast=SIZE)
    monkeypatch.undo()
    async with opened(data_dir, Ballast(data_dir / BALLAST_NAME, 0), []):
        pass  # the lock was let go
