"""Telling many tales to one writer, and reading back where each stands."""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.domain.job import Ending, JobState, NewJob, StopReason
from app.domain.receipts import Rank
from app.storage.endings import GiveBack
from app.storage.errors import StoreError
from app.storage.frames import FrameOperation
from app.storage.generations import generation_ready, insert_generation, lose_generation
from app.storage.operations import COMMITTED, NewReceipt, Operation
from app.storage.writer import Writer
from shared.ids import GenerationId
from tests.integration.storage.making import NOW, job_id, make_ending
from tests.reliability.ledger import Ledger
from tests.reliability.tales import Ask, Job, Tale

_JOBS = (
    "SELECT job.*, (SELECT coalesce(sum(token_count), 0) FROM chunk WHERE chunk.job = job.id)"
    " AS tokens, (SELECT coalesce(max(number) + 1, 0) FROM chunk WHERE chunk.job = job.id)"
    " AS next_row FROM job WHERE finalized_at IS NULL ORDER BY id"
)


@dataclass(slots=True)
class Held:
    """What a new parent finds: open jobs, and the worker that died with the power."""

    jobs: list[Job] = field(default_factory=list[Job])
    generation: GenerationId | None = None
    feed_last: int = 0
    consumer: bool = False


def read_held(path: Path) -> Held:
    """What is open in this store."""
    with closing(sqlite3.connect(path)) as driver:
        driver.row_factory = sqlite3.Row
        living = driver.execute(
            "SELECT id FROM generation WHERE state NOT IN ('lost', 'gone')"
        ).fetchall()
        ((last,),) = driver.execute("SELECT last FROM feed").fetchall()
        return Held(
            jobs=[_job(row) for row in driver.execute(_JOBS)],
            generation=GenerationId(living[0]["id"]) if living else None,
            feed_last=last,
            consumer=bool(driver.execute("SELECT 1 FROM consumer").fetchall()),
        )


def _job(row: Any) -> Job:
    return Job(
        number=int(row["id"].removeprefix("job_"), 16),
        state=JobState(row["state"]),
        attempt=row["attempt"],
        started=row["started_at"] is not None,
        events=row["events"],
        tokens=row["tokens"],
        stop=None if row["stop_reason"] is None else StopReason(row["stop_reason"]),
        rows=None,
        next_row=row["next_row"],
    )


class Teller:
    """Hands over what several tales ask for at a time, and tells each when it is acknowledged.

    It waits for every answer before it asks for more, so that a seed always makes the same commits.
    """

    def __init__(
        self, writer: Writer, ledger: Ledger, generation: GenerationId, chance: random.Random
    ) -> None:
        self._writer = writer
        self._ledger = ledger
        self._generation = generation
        self._chance = chance
        self._seq = 0

    async def begin(self, held: Held, epoch: int) -> list[Job]:
        """Declare the dead worker lost, with all it held, and start another; the open jobs."""
        jobs = held.jobs
        if held.generation is not None:
            jobs = await self._lose(held.generation, held.jobs)
        new = insert_generation(self._generation, "tiny", epoch, Path("log"), NOW)
        await self._ask([Ask(new)])
        await self._ask([Ask(generation_ready(self._generation, NOW, "print"))])
        return jobs

    async def tell(self, tales: Sequence[Tale]) -> None:
        """All of these to their ends."""
        open_tales: list[Tale] = list(tales)
        while open_tales:
            chosen = self._chance.sample(open_tales, self._chance.randint(1, len(open_tales)))
            asks: list[Ask] = []
            for tale in chosen:
                ask = next(tale, None)
                if ask is None:
                    open_tales.remove(tale)
                else:
                    asks.append(ask)
            await self._ask(asks)

    async def _lose(self, generation: GenerationId, jobs: Sequence[Job]) -> list[Job]:
        back: list[GiveBack] = []
        endings: list[tuple[NewJob, Ending, StopReason | None]] = []
        ended: list[Job] = []
        for job in jobs:
            if job.state is not JobState.RUNNING:
                continue
            if job.stop is None:
                job.state = JobState.AVAILABLE
                back.append(_given_back(job))
            else:
                endings.append((job.new, _cancelled(job), job.stop))
                ended.append(job)

        def told(ledger: Ledger) -> None:
            ledger.receipts.add(generation)
            for job in ended:
                ledger.of(job.number).ended = JobState.CANCELLED

        receipt = NewReceipt(generation=generation, asked=Rank.CRASH, now=NOW)
        lost = lose_generation(generation, NOW, "power", endings, back, receipt)
        await self._ask([Ask(lost, told)])
        return [job for job in jobs if job not in ended]

    async def _ask(self, asks: Sequence[Ask]) -> None:
        """Submit these together, and wait.

        Raises:
            StoreError: the writer can write no longer.
        """
        own = [(ask.what, [ask]) for ask in asks if isinstance(ask.what, Operation)]
        parts = [(ask.what, ask) for ask in asks if not isinstance(ask.what, Operation)]
        if parts:
            operation = self._frame([part for part, _ in parts])
            own.append((operation, [ask for _, ask in parts]))
        for ask in asks:
            ask.asked(self._ledger)
        futures = self._writer.submit_many([operation for operation, _ in own])
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        for (operation, behind), outcome in zip(own, outcomes, strict=True):
            if outcome is COMMITTED:
                self._acknowledged(operation, behind)
        for (operation, _), outcome in zip(own, outcomes, strict=True):
            if isinstance(outcome, StoreError):
                raise outcome
            assert outcome is COMMITTED, (operation.name, outcome)

    def _frame(self, parts: Sequence[Callable[[FrameOperation], None]]) -> Operation:
        self._seq += 1
        frame = FrameOperation(self._generation, self._seq)
        for part in parts:
            part(frame)
        return frame.build()

    def _acknowledged(self, operation: Operation, asks: Sequence[Ask]) -> None:
        self._ledger.acknowledgements += 1
        if operation.name == "frame":
            self._ledger.frames[self._generation] = self._seq
        for ask in asks:
            ask.told(self._ledger)


def _given_back(job: Job) -> GiveBack:
    return GiveBack(
        job=job_id(job.number), attempt=job.attempt, outcome="lost", now=NOW, due_at=NOW
    )


def _cancelled(job: Job) -> Ending:
    return make_ending(
        job.number,
        attempt=job.attempt,
        state=JobState.CANCELLED,
        finish_reason=None,
        usage=job.usage,
    )
