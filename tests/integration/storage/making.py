"""Things to store, each with overrides, and a store to put them in."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from app.domain.job import Claim, Durability, Ending, JobClass, JobState, NewJob, Usage
from app.domain.receipts import Rank
from app.storage.committing import CommitHooks
from app.storage.database import DATABASE_NAME, Database
from app.storage.generations import generation_ready, insert_generation
from app.storage.jobs import insert_job
from app.storage.limits import WriterLimits
from app.storage.operations import Committed, NewReceipt
from shared.ids import CommandId, GenerationId, JobId

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
GENERATION = GenerationId("gen_00000000000000000000000000000001")
REPOSITORY = Path(__file__).parents[3]
"""Where a child process must stand to import us."""
QUICK = WriterLimits(lazy_wait_s=0.02, retry_first_s=0.001, retry_max_s=0.01)


def job_id(number: int) -> JobId:
    """The id of the n-th job."""
    return JobId(f"job_{number:032x}")


def make_job(number: int = 1, **overrides: Any) -> NewJob:
    """A durable job, available at once."""
    job = NewJob(
        id=job_id(number),
        kind="chat",
        durability=Durability.DURABLE,
        job_class=JobClass.BACKGROUND,
        priority=0,
        surface="chat",
        tenant="default",
        model="tiny",
        created_at=NOW,
        scheduled_at=NOW,
        deadline_at=NOW + timedelta(days=7),
        seed=2**64 - 1,
        max_attempts=3,
        request=b"a prompt",
    )
    return msgspec.structs.replace(job, **overrides)


def make_claim(number: int = 1, attempt: int = 1, generation: GenerationId = GENERATION) -> Claim:
    """A claim of the n-th job."""
    return Claim(job=job_id(number), attempt=attempt, generation=generation, claimed_at=NOW)


def make_ending(number: int = 1, **overrides: Any) -> Ending:
    """The completed end of the n-th job's first attempt."""
    ending = Ending(
        job=job_id(number),
        attempt=1,
        state=JobState.COMPLETED,
        finish_reason="stop",
        failure=None,
        usage=Usage(prompt_tokens=7, cached_tokens=2, completion_tokens=5, reasoning_tokens=1),
        finalized_at=NOW + timedelta(seconds=1),
    )
    return msgspec.structs.replace(ending, **overrides)


def make_receipt(asked: Rank = Rank.CRASH, **overrides: Any) -> NewReceipt:
    """The receipt of ``GENERATION``, which has died."""
    receipt = NewReceipt(generation=GENERATION, asked=asked, now=NOW + timedelta(seconds=9))
    return replace(receipt, **overrides)


@asynccontextmanager
async def opened(
    data_dir: Path, hooks: CommitHooks | None = None, limits: WriterLimits = QUICK
) -> AsyncGenerator[Database]:
    """A store in this directory, closed at the end."""
    database = await Database.open(data_dir, limits=limits, hooks=hooks, now=lambda: NOW)
    try:
        yield database
    finally:
        await database.close()


async def start_generation(database: Database, generation: GenerationId = GENERATION) -> None:
    """A worker that takes jobs."""
    writer = database.writer
    row = insert_generation(generation, "tiny", database.parent_epoch, Path("log"), NOW)
    assert await writer.submit(row) == Committed()
    assert await writer.submit(generation_ready(generation, NOW, "print")) == Committed()


async def start_job(database: Database, number: int = 1, **overrides: Any) -> NewJob:
    """The n-th job, running on ``GENERATION`` with its command of the same number."""
    new = make_job(number, **overrides)
    operation = insert_job(new, make_claim(number), CommandId(number))
    assert await database.writer.submit(operation) == Committed()
    return new


def query(data_dir: Path, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    """Rows as they are on disk, read past all of our own code."""
    driver = sqlite3.connect(data_dir / DATABASE_NAME)
    try:
        return driver.execute(sql, params).fetchall()
    finally:
        driver.close()


def tamper(data_dir: Path, sql: str) -> None:
    """Change a closed store behind our own back."""
    driver = sqlite3.connect(data_dir / DATABASE_NAME)
    try:
        driver.execute(sql)
        driver.commit()
    finally:
        driver.close()


def names_in(directory: Path) -> list[str]:
    """The names of the files in a directory."""
    return sorted(path.name for path in directory.iterdir())
