"""A backup that was put back: old cursors are refused, and no number means two reports."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.feed import Cursor, Selection
from app.domain.report_errors import FeedEpochChanged
from app.storage.database import DATABASE_NAME
from tests.integration.reports.reading import Reading, reading

Seen = dict[tuple[str, int], str]
"""What a reader was shown at which place."""


async def read(store: Reading, seen: Seen) -> Cursor:
    """Show the consumer what it has not acknowledged; where it stands then."""
    _, page = await store.consumers.page("c", None, 100)
    for report in page.reports:
        place = (store.epoch, report.seq)
        assert seen.setdefault(place, report.subject) == report.subject
    return store.cursor(page.next)


def copied(directory: Path) -> Path:
    """A backup of the database alone, made while it may be in use."""
    backup = directory.with_name("backup.db")
    source, copy = sqlite3.connect(directory / DATABASE_NAME), sqlite3.connect(backup)
    with closing(source), closing(copy):
        source.backup(copy)
    return backup


def over_it(backup: Path, directory: Path) -> None:
    """The file stays the same one."""
    (directory / DATABASE_NAME).write_bytes(backup.read_bytes())


def in_its_place(backup: Path, directory: Path) -> None:
    (directory / DATABASE_NAME).unlink()
    shutil.copy(backup, directory / DATABASE_NAME)


def elsewhere(backup: Path, directory: Path) -> None:
    """A new directory with nothing but the database."""
    shutil.rmtree(directory)
    directory.mkdir()
    shutil.copy(backup, directory / DATABASE_NAME)


@pytest.mark.parametrize("put_back", [over_it, in_its_place, elsewhere])
async def test_a_restored_feed_begins_a_new_epoch(
    tmp_path: Path, put_back: Callable[[Path, Path], None]
) -> None:
    directory, seen = tmp_path / "data", Seen()
    async with reading(directory) as store:
        await store.consumers.create("c", Selection(), "earliest")
        await store.end_jobs(3)
        await store.consumers.ack("c", None, await read(store, seen), None)
        backup = copied(directory)
        await store.end_jobs(4)
        old = await read(store, seen)
        assert old.seq == 7
        started = store.database.parent_epoch
    put_back(backup, directory)
    async with reading(directory) as store:
        store.jobs = 100  # whatever happened since then did not
        assert store.epoch != old.epoch
        if put_back is not elsewhere:
            assert store.database.parent_epoch > started
        jobs = await store.end_jobs(6)
        with pytest.raises(FeedEpochChanged):
            await store.consumers.ack("c", None, old, None)
        now = await read(store, seen)
        assert now.seq == 9
        await store.consumers.ack("c", None, now, None)
        assert [job for (epoch, _), job in seen.items() if epoch == store.epoch] == jobs


async def test_a_second_restore_begins_another_epoch(tmp_path: Path) -> None:
    directory, epochs = tmp_path / "data", list[str]()
    async with reading(directory) as store:
        await store.end_jobs(3)
        backup = copied(directory)
        await store.end_jobs(1)
        epochs.append(store.epoch)
    for number in range(2):
        over_it(backup, directory)
        async with reading(directory) as store:
            epochs.append(store.epoch)
            if number:
                store.jobs = 50
                await store.end_jobs(1)
    assert len(set(epochs)) == 3


async def test_any_number_of_starts_keeps_the_epoch(tmp_path: Path) -> None:
    epochs = set[str]()
    for number in range(4):
        async with reading(tmp_path / "data") as store:
            store.jobs = 10 * number
            await store.end_jobs(number)
            epochs.add(store.epoch)
    assert len(epochs) == 1


async def test_a_backup_to_which_nothing_was_added_since_is_the_same_feed(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    async with reading(directory) as store:
        await store.end_jobs(3)
        backup, epoch = copied(directory), store.epoch
    over_it(backup, directory)
    async with reading(directory) as store:
        assert store.epoch == epoch


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff" * 300])
async def test_a_mark_that_cannot_be_read_costs_an_epoch_once(
    tmp_path: Path, content: bytes | None
) -> None:
    directory, epochs = tmp_path / "data", list[str]()
    async with reading(directory) as store:
        await store.end_jobs(1)
        epochs.append(store.epoch)
    mark = directory / "feed"
    mark.unlink() if content is None else mark.write_bytes(content)
    for _ in range(2):
        async with reading(directory) as store:
            epochs.append(store.epoch)
    assert epochs[0] != epochs[1] == epochs[2]
