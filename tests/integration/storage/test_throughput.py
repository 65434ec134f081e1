"""Figures, not rules: how fast jobs are recorded. Run with `-m benchmark -s`."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.storage.database import Database
from app.storage.jobs import insert_job
from app.storage.limits import WriterLimits
from tests.integration.storage.making import make_job, opened

JOBS = 6_000


@pytest.mark.benchmark
@pytest.mark.parametrize("callers", [1, 16, 128])
async def test_submissions_a_second(data_dir: Path, callers: int) -> None:
    async with opened(data_dir, limits=WriterLimits()) as database:
        numbers = iter(range(JOBS if callers > 1 else JOBS // 10))
        latencies: list[float] = []
        started, used = time.perf_counter(), time.process_time()
        await asyncio.gather(*(submit(database, numbers, latencies) for _ in range(callers)))
        took, used = time.perf_counter() - started, time.process_time() - used
        commits = database.writer.counts.committed.commits
    latencies.sort()
    count = len(latencies)
    print(  # noqa: T201 - the figures
        f"\n{callers} callers: {count / took:,.0f} jobs/s,"
        f" p50 {latencies[count // 2] * 1e3:.2f} ms,"
        f" p99 {latencies[count * 99 // 100] * 1e3:.2f} ms,"
        f" {used / count * 1e6:.0f} us of CPU a job, {count / commits:.0f} a commit"
    )


async def submit(database: Database, numbers: Iterator[int], latencies: list[float]) -> None:
    """One caller: the next job as soon as the last is recorded."""
    for number in numbers:
        began = time.perf_counter()
        await database.writer.submit(insert_job(make_job(number, request=bytes(300))))
        latencies.append(time.perf_counter() - began)
