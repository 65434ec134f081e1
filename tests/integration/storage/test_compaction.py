"""Joined journals say what they said, under the same numbers."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from app.storage import compaction
from app.storage.compaction import compact, load_cursor, load_ended, move_cursor
from app.storage.database import Database
from app.storage.frames import NewChunk
from app.storage.journal import EVENTS_PER_PAGE, load_page, read_journal
from app.storage.operations import Committed, Void
from app.storage.reading import load_chunks
from app.storage.retention import Expired, delete_expired
from shared.ids import JobId
from tests.integration.storage.journals import Journals, rows_of, told
from tests.integration.storage.making import (
    NOW,
    job_id,
    query,
    start_generation,
    start_job,
)

ROWS = 1_200
EPOCH = NOW.replace(year=1971)
LATER = NOW.replace(year=2030)


@pytest.fixture
async def job(database: Database) -> JobId:
    """An ended job of many rows."""
    await start_generation(database)
    return await Journals(database).ended_job(1, ROWS)


async def join_all(database: Database, job: JobId, page: int = compaction.ROWS_MAX) -> None:
    """As the product does it: page by page."""
    number = 0
    while rows := await load_chunks(database.readers, job, from_number=number, limit=page):
        operation = compact(rows)
        if operation is not None:
            assert len(operation.steps) <= 2 * compaction.ROWS_MAX
            assert await database.writer.submit(operation) == Committed()
        number = rows[-1].number + 1


async def all_rows(database: Database, job: JobId) -> list[NewChunk]:
    rows: list[NewChunk] = []
    await read_journal(database.readers, job, rows.append)
    return rows


async def test_a_joined_journal_says_the_same_in_few_rows(database: Database, job: JobId) -> None:
    before = told(await all_rows(database, job))
    await join_all(database, job)
    rows = await all_rows(database, job)
    assert told(rows) == before
    assert len(rows) <= 2 * -(-ROWS // compaction.ROWS_MAX)
    assert all(r.last_event - r.first_event < compaction.EVENTS_MAX for r in rows)
    await join_all(database, job)
    assert told(await all_rows(database, job)) == before


async def test_a_reader_that_goes_on_by_number_misses_nothing(
    database: Database, job: JobId
) -> None:
    _, whole, _ = told(await all_rows(database, job))
    first = await load_chunks(database.readers, job, limit=700)
    await join_all(database, job)
    rest = await load_chunks(database.readers, job, from_number=first[-1].number + 1)
    assert rest[0].first_event <= first[-1].last_event + 1
    shown = [n for row in rest for n in range(row.first_event, row.last_event + 1)]
    assert shown == [event for event, _ in whole if event >= rest[0].first_event]


@pytest.mark.parametrize("start", [1, 2, 37, 499, 700, 960])
async def test_pages_by_event_are_whole_whenever_the_rows_are_joined(
    database: Database, job: JobId, start: int
) -> None:
    whole = told(await all_rows(database, job))[1]
    seen = await follow(database, job, start, pages=1)
    await join_all(database, job, page=90)
    seen = await follow(database, job, start, seen, pages=1)
    await join_all(database, job)
    seen = await follow(database, job, start, seen)
    assert seen == [event for event, _ in whole if event >= start]


async def follow(
    database: Database,
    job: JobId,
    start: int,
    seen: Sequence[int] = (),
    pages: int = 100,
) -> list[int]:
    """The numbers that a reader is shown who wants those from ``start`` on and has some."""
    events = list(seen)
    for _ in range(pages):
        wanted = events[-1] + 1 if events else start
        page = await load_page(database.readers, job, wanted)
        assert page is not None
        shown = [n for row in page.chunks for n in range(row.first_event, row.last_event + 1)]
        events += [n for n in shown if n >= wanted]
        assert len(shown) < EVENTS_PER_PAGE + compaction.EVENTS_MAX
        if page.last:
            assert events[-1] == page.job.events - 2
            return events
    return events


async def test_a_page_knows_that_it_is_the_last(database: Database) -> None:
    await start_generation(database)
    job = await Journals(database).ended_job(1, 5)
    page = await load_page(database.readers, job, 1)
    assert page is not None
    assert page.last
    beyond = await load_page(database.readers, job, 1_000)
    assert beyond is not None
    assert (beyond.chunks, beyond.last) == ([], True)
    assert await load_page(database.readers, job_id(9), 1) is None


async def test_rows_of_different_attempts_choices_and_logprobs_stay_apart() -> None:
    first, second = rows_of(2)
    for other in (
        {"attempt": 2},
        {"choice": 1},
        {"logprobs": b"\x91\x00"},
        {"first_event": second.first_event + 1, "last_event": second.last_event + 1},
        {"first_token": 5},
    ):
        assert compact([first, msgspec.structs.replace(second, **other)]) is None
    assert compact([first]) is None
    assert compact([]) is None


async def test_a_row_grows_no_larger_than_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(40)
    monkeypatch.setattr(compaction, "BYTES_MAX", 60)
    operation = compact(rows)
    assert operation is not None
    inserts = [s.params for s in operation.steps if s.statement.name == "chunk.insert"]
    assert len(inserts) > 5
    for params in inserts:
        *_, parts = params
        assert isinstance(parts, bytes)
        assert len(parts) < 80


async def test_the_journal_of_an_open_job_is_left_alone(database: Database) -> None:
    await start_generation(database)
    await start_job(database, 1)
    operation = compact(rows_of(2))
    assert operation is not None
    assert await database.writer.submit(operation) == Void("chunk.drop", job_id(1))


async def test_a_job_that_was_deleted_meanwhile_stays_deleted(
    database: Database, job: JobId, data_dir: Path
) -> None:
    rows = await load_chunks(database.readers, job, limit=100)
    gone = Expired(jobs=(job,), keys=0, now=LATER, keep_s=1)
    assert await database.writer.submit(delete_expired(gone)) == Committed()
    operation = compact(rows)
    assert operation is not None
    assert await database.writer.submit(operation) == Void("chunk.drop", job)
    assert query(data_dir, "SELECT count(*) FROM chunk") == [(0,)]


async def test_what_ended_is_found_by_time_and_the_cursor_is_kept(database: Database) -> None:
    await start_generation(database)
    journals = Journals(database)
    several = await journals.ended_job(1, 3)
    await journals.ended_job(2, 3, keep_s=600.0)
    single = await journals.ended_job(3, 1)
    assert await load_cursor(database.readers) < EPOCH
    ended = await load_ended(database.readers, EPOCH, LATER, 10)
    assert [(found.id, found.scattered) for found in ended] == [(several, True), (single, False)]
    await database.writer.submit(move_cursor(LATER))
    assert await load_cursor(database.readers) == LATER
    assert await load_ended(database.readers, LATER, LATER.replace(year=2031), 10) == []
