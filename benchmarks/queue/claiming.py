"""The store alone: the shipped claim, on a small and on a large table."""

import asyncio
import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.domain.job import Claim, Durability, JobClass, NewJob
from app.storage.database import Database
from app.storage.generations import generation_ready, insert_generation
from app.storage.jobs import claim_jobs, insert_jobs
from benchmarks.queue.figures import Figure, middle
from benchmarks.queue.site import MODEL
from shared.ids import CommandId, GenerationId, IdMint, JobId

SIZES = (1_000, 1_000_000)
CLAIMS = 400
BATCH = 1_000
REQUEST = b"x" * 300


def measure(place: Path, sizes: tuple[int, ...] = SIZES) -> Iterator[Figure]:
    """One claim a commit, each of a random waiting job; the ratio is of the medians."""
    medians = [asyncio.run(_claims(place / str(size), size)) for size in sizes]
    for size, median in zip(sizes, medians, strict=True):
        yield Figure(name=f"claim and commit, {size:,} rows, p50", value=1e6 * median, unit="µs")
    yield Figure(name="… ratio", value=medians[-1] / medians[0], unit="times", goal=1.6)


async def _claims(place: Path, size: int) -> float:
    database = await Database.open(place)
    try:
        mint = IdMint(lambda: time.time_ns() // 1_000_000, os.urandom)
        generation = mint.generation()
        now = datetime.now(UTC)
        await database.writer.submit(insert_generation(generation, MODEL, 1, Path("log"), now))
        await database.writer.submit(generation_ready(generation, now, "fp"))
        chosen = set(random.Random(1).sample(range(size), CLAIMS))
        jobs = await _fill(database, mint, size, chosen)
        return middle([await _claim(database, generation, job, n) for n, job in enumerate(jobs)])
    finally:
        await database.close()


async def _fill(database: Database, mint: IdMint, size: int, chosen: set[int]) -> list[JobId]:
    kept: list[JobId] = []
    for first in range(0, size, BATCH):
        jobs = [_job(mint.job()) for _ in range(first, min(size, first + BATCH))]
        await database.writer.submit(insert_jobs(jobs))
        kept += [job.id for n, job in enumerate(jobs, first) if n in chosen]
    return kept


def _job(job: JobId) -> NewJob:
    now = datetime.now(UTC)
    return NewJob(
        id=job,
        kind="chat",
        durability=Durability.DURABLE,
        job_class=JobClass.BACKGROUND,
        priority=0,
        surface="native",
        tenant="default",
        model=MODEL,
        created_at=now,
        scheduled_at=now,
        deadline_at=now + timedelta(days=7),
        seed=1,
        settings=b"{}",
        request=REQUEST,
    )


async def _claim(database: Database, generation: GenerationId, job: JobId, number: int) -> float:
    claim = Claim(job=job, attempt=1, generation=generation, claimed_at=datetime.now(UTC))
    began = time.perf_counter()
    await database.writer.submit(claim_jobs([(claim, CommandId(number + 1))]))
    return time.perf_counter() - began
