"""Many rows written by one statement are what they are one by one."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from app.storage.database import DATABASE_NAME, Database
from app.storage.frames import FrameOperation, NewChunk
from app.storage.jobs import claim_jobs, insert_job, insert_jobs
from app.storage.operations import Committed, Operation, Rank, Statement, Void
from app.storage.together import WIDTHS, change
from shared.ids import CommandId
from tests.integration.storage.making import (
    GENERATION,
    NOW,
    job_id,
    make_claim,
    make_ending,
    make_job,
    opened,
    start_generation,
)

_OWN = ('"meta"', "sqlite_stat1", "ANALYZE")
"""What a store says of itself."""

MANY = sum(WIDTHS) + 3
"""Rows of which some go by each text that there is, and some alone."""


def told(number: int, frame: FrameOperation) -> None:
    """All that a frame can say of the n-th job that begins and ends in it."""
    job = job_id(number)
    frame.accepted(
        job,
        1,
        now=NOW,
        prompt_tokens=number,
        cached_tokens=0,
        digest="digest",
        fingerprint="print",
    )
    frame.progressed(job, 1, number)
    frame.tokens(job, 1, 0, number)
    frame.journal(
        NewChunk(
            job=job,
            number=0,
            first_event=2,
            last_event=2,
            attempt=1,
            choice=0,
            first_token=0,
            token_count=number,
            tokens=b"\x01" * number,
            parts=f"text of {number}".encode(),
        )
    )
    frame.ended(make_job(number), make_ending(number), stop_reason=None)


def alone(numbers: Sequence[int]) -> list[list[Operation]]:
    """Every job's insert, claim and end as an operation of its own."""
    ends: list[Operation] = []
    for seq, number in enumerate(numbers, 1):
        frame = FrameOperation(GENERATION, seq)
        told(number, frame)
        ends.append(frame.build())
    return [
        [insert_job(make_job(number)) for number in numbers],
        [claim_jobs([(make_claim(number), CommandId(number))]) for number in numbers],
        ends,
    ]


def together(numbers: Sequence[int]) -> list[list[Operation]]:
    """The same in three operations."""
    frame = FrameOperation(GENERATION, 1)
    for seq, number in enumerate(numbers, 1):
        if seq > 1:
            frame.join(seq)
        told(number, frame)
    return [
        [insert_jobs([make_job(number) for number in numbers])],
        [claim_jobs([(make_claim(number), CommandId(number)) for number in numbers])],
        [frame.build()],
    ]


async def come_to(place: Path, commits: Sequence[Sequence[Operation]], *, apart: bool) -> list[str]:
    """Everything that the store holds after these, each in a commit of its own if ``apart``."""
    async with opened(place) as database:
        await start_generation(database)
        for operations in commits:
            if apart:
                for operation in operations:
                    assert await database.writer.submit(operation) == Committed()
            else:
                futures = database.writer.submit_many(operations)
                assert set(await asyncio.gather(*futures)) == {Committed()}
        assert database.writer.counts.committed.replays == 0
    with closing(sqlite3.connect(place / DATABASE_NAME)) as store:
        return [line for line in store.iterdump() if not any(word in line for word in _OWN)]


async def test_many_rows_in_one_statement_are_what_they_are_one_by_one(tmp_path: Path) -> None:
    numbers = range(1, MANY + 1)
    one_by_one = await come_to(tmp_path / "apart", alone(numbers), apart=True)
    assert await come_to(tmp_path / "one", together(numbers), apart=False) == one_by_one


async def test_one_of_many_that_is_void_leaves_the_others_their_rows(database: Database) -> None:
    await start_generation(database)
    numbers = range(1, MANY + 1)
    await database.writer.submit(insert_jobs([make_job(number) for number in numbers]))
    await database.writer.submit(claim_jobs([(make_claim(7), CommandId(MANY + 1))]))
    claims = [claim_jobs([(make_claim(number), CommandId(number))]) for number in numbers]
    outcomes = await asyncio.gather(*database.writer.submit_many(claims))
    expected = [Void("job.claim", job_id(7)) if n == 7 else Committed() for n in numbers]
    assert outcomes == expected


async def test_many_claims_of_one_operation_are_all_made_or_none(database: Database) -> None:
    await start_generation(database)
    await database.writer.submit(insert_jobs([make_job(1), make_job(2)]))
    await database.writer.submit(claim_jobs([(make_claim(2), CommandId(9))]))
    both = claim_jobs([(make_claim(1), CommandId(1)), (make_claim(2), CommandId(2))])
    assert await database.writer.submit(both) == Void("job.claim", job_id(2))
    assert await database.writer.submit(claim_jobs([(make_claim(1), CommandId(1))])) == Committed()


def test_a_row_named_twice_is_changed_once_and_the_sum_tells(tmp_path: Path) -> None:
    sql = "UPDATE thing SET n = n + :more WHERE id = :id"
    statement = Statement("thing.more", Rank.META, sql, together=True)
    with closing(sqlite3.connect(tmp_path / "things")) as driver:
        driver.execute("CREATE TABLE thing (id INTEGER PRIMARY KEY, n INTEGER)")
        driver.executemany("INSERT INTO thing VALUES (?, 0)", [(n,) for n in range(8)])
        rows = [statement.values({"id": n % 3, "more": 1}) for n in range(4)]
        assert change(driver, statement, rows) == 3


def test_a_statement_that_takes_no_table_is_refused(tmp_path: Path) -> None:
    sql = "DELETE FROM thing"
    statement = Statement("thing.drop", Rank.META, sql, together=True)
    refused = pytest.raises(ValueError, match="not a statement for many rows")
    with closing(sqlite3.connect(tmp_path / "things")) as driver, refused:
        change(driver, statement, [()] * max(WIDTHS))
