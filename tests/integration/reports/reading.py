"""A store with its feed and its readers, and jobs that end in it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from app.domain.feed import Cursor
from app.domain.job import JobState, Usage
from app.domain.view import DrainView
from app.services.consumers import Consumers
from app.services.parking import Parking
from app.services.report_feed import ReportFeed
from app.services.tasks import Tasks
from app.settings import RetentionSettings
from app.storage.database import Database
from app.storage.drains import end_drain, insert_drain
from app.storage.jobs import end_waiting_job, insert_job
from app.storage.operations import Committed, Operation
from tests.integration.storage.making import NOW, make_ending, make_job, opened

COUNTS = ("in_flight", "finished", "given_back", "cancelled")


@dataclass
class Clock:
    """Two clocks that stand still until they are moved."""

    moment: datetime = NOW
    seconds: float = 1000.0

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.seconds

    def passes(self, seconds: float) -> None:
        """Time passes."""
        self.moment += timedelta(seconds=seconds)
        self.seconds += seconds


@dataclass
class Reading:
    """The services over one open store."""

    database: Database
    clock: Clock
    tasks: Tasks
    feed: ReportFeed
    consumers: Consumers
    jobs: int = field(default=0)

    @property
    def epoch(self) -> str:
        return self.feed.epoch

    def cursor(self, seq: int) -> Cursor:
        return Cursor(self.epoch, seq)

    async def write(self, *operations: Operation) -> None:
        """Commit these together."""
        futures = self.database.writer.submit_many(operations)
        assert [await future for future in futures] == [Committed()] * len(operations)

    async def settled(self) -> None:
        """Everything that was written so far is committed."""
        await self.write(Operation(name="nothing", subjects=(), steps=()))

    async def end_jobs(self, count: int = 1, **overrides: Any) -> list[str]:
        """So many jobs are submitted and end; their ids."""
        numbers = range(self.jobs + 1, self.jobs + count + 1)
        self.jobs += count
        new = [make_job(number, **overrides) for number in numbers]
        await self.write(*(insert_job(job) for job in new))
        await self.write(*(_cancelled(number, **overrides) for number in numbers))
        return [job.id for job in new]

    async def end_a_drain(self) -> None:
        """A drain is begun and ends."""
        fields: dict[str, Any] = {"id": f"drain_{self.jobs}", "mode": "finish", "scope": "server"}
        counts: dict[str, Any] = dict.fromkeys(COUNTS, 0)
        drain = DrainView(
            **fields, **counts, state="running", started_at=NOW, ended_at=None, timeout_s=1
        )
        await self.write(insert_drain(drain))
        ended = DrainView(
            **fields, **counts, state="completed", started_at=NOW, ended_at=NOW, timeout_s=1
        )
        await self.write(end_drain(ended))

    def parking(self, **settings: Any) -> Parking:
        """What parks consumers, under these settings."""
        retention = RetentionSettings(**settings)
        return Parking(self.database, self.feed, self.consumers, self.tasks, self.clock, retention)


def _cancelled(number: int, **overrides: Any) -> Operation:
    ending = make_ending(
        number,
        state=JobState.CANCELLED,
        finish_reason=None,
        attempt=0,
        finalized_at=NOW,
        usage=Usage(),
    )
    return end_waiting_job(make_job(number, **overrides), ending, JobState.AVAILABLE)


@asynccontextmanager
async def reading(data_dir: Path) -> AsyncGenerator[Reading]:
    """The services over the store in this directory."""
    async with opened(data_dir) as database:
        clock, tasks = Clock(), Tasks()
        feed = ReportFeed(database, tasks)
        yield Reading(database, clock, tasks, feed, Consumers(database, feed, clock))
        await tasks.close()


async def soon(awaitable: Any) -> Any:
    """What must come at once."""
    return await asyncio.wait_for(awaitable, 5)
