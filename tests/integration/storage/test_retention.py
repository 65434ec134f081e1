import asyncio
import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.domain.job import Durability, JobState, NewJob
from app.storage.database import Database
from app.storage.frames import FrameOperation, NewChunk
from app.storage.jobs import claim_jobs, end_waiting_job, insert_job
from app.storage.operations import Committed, Operation
from app.storage.padding import PAGE_BYTES
from app.storage.reading import load_chunks, load_job, load_reports, load_request
from app.storage.retention import ROWS_MAX, delete_expired, load_expired, next_expiry
from shared.ids import CommandId, JobId
from tests.integration.storage.making import (
    GENERATION,
    NOW,
    job_id,
    make_claim,
    make_ending,
    make_job,
    query,
    start_generation,
    tamper,
)
from tests.integration.storage.test_idempotency import insert_with, make_key
from tests.waiting import wait_until

COMMITTED = Committed()
DAY_S = 86_400.0
MONTH_S = 30 * DAY_S
ENDED = NOW + timedelta(seconds=1)
B_TREE_PAGES = (0x02, 0x05, 0x0A, 0x0D)
MARKER = b"a secret that nobody may find"


def after(seconds: float) -> datetime:
    """So long after the jobs here end."""
    return ENDED + timedelta(seconds=seconds)


def end(new: NewJob) -> Operation:
    """It is cancelled while it waits."""
    number = int(new.id.removeprefix("job_"), 16)
    ending = make_ending(number, attempt=0, state=JobState.CANCELLED, finish_reason=None)
    return end_waiting_job(new, ending, JobState.AVAILABLE)


async def submit_ended(database: Database, number: int, **overrides: Any) -> None:
    """The n-th job, which has ended."""
    new = make_job(number, **overrides)
    for operation in (insert_job(new), end(new)):
        assert await database.writer.submit(operation) == COMMITTED


async def sweep(database: Database, now: datetime) -> list[tuple[JobId, ...]]:
    """Delete all that is due; the batches."""
    batches: list[tuple[JobId, ...]] = []
    while expired := await load_expired(database.readers, now, MONTH_S):
        assert await database.writer.submit(delete_expired(expired)) == COMMITTED
        batches.append(expired.jobs)
    return batches


async def test_an_ended_job_goes_when_its_time_is_over_and_not_before(database: Database) -> None:
    await submit_ended(database, 1)
    await submit_ended(database, 2, keep_s=600.0)
    await submit_ended(database, 3, keep_s=2 * MONTH_S)
    assert await sweep(database, after(599.999)) == []
    assert await sweep(database, after(600)) == [(job_id(2),)]
    assert await sweep(database, after(MONTH_S - 1)) == []
    assert await sweep(database, after(MONTH_S)) == [(job_id(1),)]
    assert await sweep(database, after(2 * MONTH_S)) == [(job_id(3),)]


async def test_a_job_that_has_not_ended_is_kept_for_ever(database: Database) -> None:
    await database.writer.submit(insert_job(make_job(1, keep_s=0.0)))
    assert await sweep(database, after(100 * MONTH_S)) == []
    assert await next_expiry(database.readers, MONTH_S) is None


async def test_all_that_is_the_jobs_goes_with_it_and_its_report_stays(database: Database) -> None:
    await start_generation(database)
    new = make_job(1, keep_s=600.0)
    insert = insert_job(new, make_claim(1), CommandId(1), idempotency=make_key(1))
    frame = FrameOperation(GENERATION, 1)
    frame.journal(make_chunk(1, 0, 1))
    frame.ended(new, make_ending(1), stop_reason=None)
    for operation in (insert, frame.build()):
        assert await database.writer.submit(operation) == COMMITTED
    await sweep(database, after(600))
    assert await load_job(database.readers, job_id(1)) is None
    assert await load_request(database.readers, job_id(1)) is None
    assert await load_chunks(database.readers, job_id(1)) == []
    for table in ("attempt", "chunk", "idempotency"):
        assert query(database.path.parent, f"SELECT count(*) FROM {table}") == [(0,)]
    assert [report.subject for report in await load_reports(database.readers)] == [job_id(1)]


async def test_keys_whose_time_is_over_go_and_their_jobs_stay(database: Database) -> None:
    await database.writer.submit(insert_with(1))
    await database.writer.submit(insert_with(2, key="k2", expires_at=NOW + timedelta(days=2)))
    assert await sweep(database, NOW + timedelta(days=1)) == [()]
    assert query(database.path.parent, "SELECT key FROM idempotency") == [("k2",)]
    assert query(database.path.parent, "SELECT count(*) FROM job") == [(2,)]


async def test_the_next_expiry_is_the_earliest_of_all(database: Database) -> None:
    readers = database.readers
    assert await next_expiry(readers, MONTH_S) is None
    await submit_ended(database, 1)
    assert await next_expiry(readers, MONTH_S) == after(MONTH_S)
    await submit_ended(database, 2, keep_s=2 * DAY_S)
    assert await next_expiry(readers, MONTH_S) == after(2 * DAY_S)
    await database.writer.submit(insert_with(3))
    assert await next_expiry(readers, MONTH_S) == NOW + timedelta(days=1)


async def test_small_jobs_go_together_and_a_large_one_alone(database: Database) -> None:
    await start_generation(database)
    large = make_job(1, keep_s=0.0)
    await database.writer.submit(insert_job(large, make_claim(1), CommandId(1)))
    frame = FrameOperation(GENERATION, 1)
    for number in range(ROWS_MAX + 100):
        frame.journal(make_chunk(1, number, number + 1))
    frame.ended(large, make_ending(1), stop_reason=None)
    assert await database.writer.submit(frame.build()) == COMMITTED
    jobs = [make_job(number) for number in range(2, ROWS_MAX + 12)]
    await asyncio.gather(*database.writer.submit_many([insert_job(new) for new in jobs]))
    await asyncio.gather(*database.writer.submit_many([end(new) for new in jobs]))
    batches = await sweep(database, after(MONTH_S))
    assert [len(batch) for batch in batches] == [1, ROWS_MAX, 10]


async def test_a_job_that_was_given_more_time_meanwhile_is_left_alone(database: Database) -> None:
    await submit_ended(database, 1, keep_s=600.0)
    expired = await load_expired(database.readers, after(600), MONTH_S)
    tamper(database.path.parent, "UPDATE job SET keep_ms = 900000, keep_until = keep_until + 9")
    assert await database.writer.submit(delete_expired(expired)) == COMMITTED
    assert await load_job(database.readers, job_id(1)) is not None


def make_chunk(job: int, number: int, event: int, parts: bytes = b"x") -> NewChunk:
    """A journal row of one token and one event."""
    return NewChunk(
        job=job_id(job),
        number=number,
        first_event=event,
        last_event=event,
        attempt=1,
        choice=0,
        first_token=number,
        token_count=1,
        tokens=b"\x91\x01",
        parts=parts,
    )


def found(database: Database) -> dict[str, int]:
    """How often the marker is in each file of the store."""
    files = database.path.parent.iterdir()
    counts = {path.name: path.read_bytes().count(MARKER) for path in files}
    return {name: count for name, count in counts.items() if count}


async def forgotten(database: Database) -> None:
    """The log has been cut."""
    log = database.writer.counts.log
    await asyncio.to_thread(wait_until, lambda: not log.forgetting, what="a log without the past")


@pytest.mark.parametrize("neighbours", [0, 1, 4], ids=["alone", "every other", "one in five"])
async def test_no_text_of_a_deleted_job_is_left_in_any_file(
    database: Database, neighbours: int
) -> None:
    """Also when the rows around it stay, grow, and are moved from page to page."""
    dice = random.Random(neighbours)
    await start_generation(database)
    jobs = {number: make_some_job(number, neighbours + 1, dice) for number in range(1, 61)}
    for number, new in jobs.items():
        key = make_key(number, key=f"k{number}")
        assert await database.writer.submit(insert_job(new, idempotency=key)) == COMMITTED
    for number in shuffled(jobs, dice):
        claim = claim_jobs([(make_claim(number), CommandId(number))])
        assert await database.writer.submit(claim) == COMMITTED
    seq = await talk(database, jobs, dice)
    for number in shuffled(jobs, dice):
        frame = FrameOperation(GENERATION, seq := seq + 1)
        frame.ended(jobs[number], make_ending(number), stop_reason=None)
        assert await database.writer.submit(frame.build()) == COMMITTED
    assert found(database)
    await sweep(database, after(600))
    await forgotten(database)
    assert found(database) == {}
    left = query(database.path.parent, "SELECT count(*) FROM job")
    assert left == [(60 - 60 // (neighbours + 1),)]


@pytest.mark.parametrize("length", [1, 40, 300, 900, 2000, 4000])
async def test_text_that_will_go_lies_on_pages_of_its_own(database: Database, length: int) -> None:
    """A page of a B-tree is copied from; a page behind one row's end is not."""
    await start_generation(database)
    for number in range(1, 9):
        new = make_job(number, keep_s=600.0, request=b"-" * length + MARKER)
        insert = insert_job(new, make_claim(number), CommandId(number))
        assert await database.writer.submit(insert) == COMMITTED
        frame = FrameOperation(GENERATION, number)
        frame.journal(make_chunk(number, 0, 1, b"-" * length + MARKER))
        assert await database.writer.submit(frame.build()) == COMMITTED
    await database.close()
    content = database.path.read_bytes()
    pages = [content[start : start + PAGE_BYTES] for start in range(0, len(content), PAGE_BYTES)]
    of_trees = [page for page in pages[1:] if page[0] in B_TREE_PAGES]
    assert of_trees
    assert not [page for page in of_trees if MARKER in page]
    assert content.count(MARKER) >= 8


def make_some_job(number: int, every: int, dice: random.Random) -> NewJob:
    """The n-th job; one in ``every`` is kept for a short time and holds the marker."""
    goes = number % every == 0
    text = MARKER if goes else b"the text of a job that stays"
    return make_job(
        number,
        request=text * dice.choice([1, 2, 9, 40, 100]),
        durability=Durability.STORED if number % 2 else Durability.DURABLE,
        keep_s=600.0 if goes else None,
    )


def shuffled(jobs: dict[int, NewJob], dice: random.Random) -> list[int]:
    return dice.sample(list(jobs), len(jobs))


async def talk(database: Database, jobs: dict[int, NewJob], dice: random.Random) -> int:
    """Output of all jobs, a few of them in each frame; the last frame's number."""
    rows = dict.fromkeys(jobs, 0)
    for seq in range(1, 61):
        frame = FrameOperation(GENERATION, seq)
        for number in dice.sample(list(jobs), 16):
            text = MARKER if jobs[number].keep_s is not None else b"what stays"
            parts = text * dice.choice([1, 1, 2, 3, 30, 200])
            frame.journal(make_chunk(number, rows[number], rows[number] + 1, parts))
            rows[number] += 1
        assert await database.writer.submit(frame.build()) == COMMITTED
    return 60


async def test_a_reader_keeps_the_log_only_as_long_as_it_reads_and_stops_no_one(
    database: Database,
) -> None:
    await submit_ended(database, 1, keep_s=600.0, request=MARKER)
    async with database.readers.snapshot() as snapshot:
        await snapshot.rows("SELECT count(*) FROM job", {})
        await sweep(database, after(600))
        for number in range(2, 5):
            await database.writer.submit(insert_job(make_job(number)))
        assert database.writer.counts.log.forgetting
        assert found(database)
    await forgotten(database)
    assert found(database) == {}


async def test_deleting_keys_alone_leaves_the_log_alone(database: Database) -> None:
    await database.writer.submit(insert_with(1))
    expired = await load_expired(database.readers, NOW + timedelta(days=1), MONTH_S)
    assert delete_expired(expired).forgets is False
