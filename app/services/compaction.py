"""Joining the journals of ended jobs, a while after their end and never in anybody's way.

Jobs that end stand in a line and are due ``AFTER_S`` later; one timer for the first of them. What
an earlier parent left is looked for once after a start, from where the last look ended.
"""

import asyncio
from collections import deque
from datetime import datetime, timedelta

import structlog

from app.domain.job import Ending
from app.services.clock import Clock
from app.services.endings import Endings
from app.services.ledger import LiveJob
from app.services.tasks import Tasks
from app.storage.compaction import ROWS_MAX, compact, load_cursor, load_ended, move_cursor
from app.storage.database import Database
from app.storage.errors import PayloadDamaged
from app.storage.frames import NewChunk
from app.storage.operations import Operation
from app.storage.reading import load_chunks
from shared.ids import JobId

AFTER_S = 60.0
"""From a job's end, so that those who follow it have gone."""

KEPT_S_MIN = 3_600.0
"""Jobs that are deleted sooner than this are left as they are."""

PAUSE_S = 0.02
"""Between two operations, so that the writer serves others first."""

CURSOR_S = 3_600.0
"""Between two notes of how far the jobs were looked at."""

LINE_MAX = 100_000
"""Jobs that stand in line; those beyond are looked for in the store."""

PAGE = 200
_log = structlog.get_logger("compaction")


class Compaction:
    """Sees to it that ended jobs take few rows. ``jobs`` counts those that do now.

    Args:
        jobs_s: how long a job is kept that does not say.
    """

    def __init__(
        self, database: Database, tasks: Tasks, endings: Endings, clock: Clock, jobs_s: float
    ) -> None:
        self._database = database
        self._tasks = tasks
        self._clock = clock
        self._jobs_s = jobs_s
        self._line: deque[tuple[float, JobId]] = deque()
        self._look = True
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._operations = list[Operation]()
        self._weight = self._gathered = 0
        self._noted_at = clock.monotonic()
        self.jobs = 0
        endings.on_ended.append(self._ended)

    def start(self) -> None:
        """Begin with what an earlier parent left."""
        self._wait(AFTER_S)

    def stop(self) -> None:
        """Join no more."""
        self._busy = True
        if self._timer is not None:
            self._timer.cancel()

    def _ended(self, live: LiveJob, _ending: Ending) -> None:
        if not live.journaled or live.next_chunk < 2 or not self._worth_it(live.new.keep_s):
            return
        if len(self._line) >= LINE_MAX:
            self._look = True
            return
        self._line.append((self._clock.monotonic() + AFTER_S, live.id))
        if self._timer is None:
            self._wait(AFTER_S)

    def _worth_it(self, keep_s: float | None) -> bool:
        return (self._jobs_s if keep_s is None else keep_s) >= KEPT_S_MIN + AFTER_S

    def _wait(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._run)

    def _run(self) -> None:
        self._timer = None
        if self._busy:
            return
        if self._database.room.short:
            self._wait(AFTER_S)  # what room there is is for others
            return
        self._busy = True
        self._tasks.spawn(self._pass(), "compaction")

    async def _pass(self) -> None:
        try:
            if self._look:
                self._look = False
                await self._look_back()
            while self._line and self._line[0][0] <= self._clock.monotonic():
                await self._join(self._line.popleft()[1])
            await self._commit()
            if self._clock.monotonic() - self._noted_at >= CURSOR_S:
                await self._note(self._clock.now() - timedelta(seconds=2 * AFTER_S))
        finally:
            self._busy = False
        if self._line:
            self._wait(max(1.0, self._line[0][0] - self._clock.monotonic()))
        elif self._look:
            self._wait(AFTER_S)

    async def _look_back(self) -> None:
        """Jobs of earlier parents, and those that found no room in the line."""
        if not self._worth_it(None):
            return
        now = self._clock.now()
        until = now - timedelta(seconds=AFTER_S)
        kept = now - timedelta(seconds=self._jobs_s - KEPT_S_MIN)
        after = max(kept, await load_cursor(self._database.readers))
        while ended := await load_ended(self._database.readers, after, until, PAGE):
            for job in ended:
                if job.scattered:
                    await self._join(job.id)
            await self._commit()
            after = ended[-1].finalized_at
            await asyncio.sleep(PAUSE_S)
        await self._note(until)

    async def _note(self, done_to: datetime) -> None:
        self._noted_at = self._clock.monotonic()
        await self._database.writer.submit(move_cursor(done_to))

    async def _join(self, job: JobId) -> None:
        """Join what can be joined of one job, together with others as far as they fit."""
        number, joined = 0, False
        while rows := await self._rows(job, number):
            operation = compact(rows)
            if operation is not None:
                if self._weight + len(rows) > ROWS_MAX:
                    await self._commit()
                self._operations.append(operation)
                self._weight += len(rows)
                joined = True
            number = rows[-1].number + 1
        self._gathered += joined

    async def _commit(self) -> None:
        """Write what was gathered. A job that was deleted meanwhile stays so."""
        if not self._operations:
            return
        futures = self._database.writer.submit_many(self._operations)
        self._operations, self._weight = [], 0
        for outcome in await asyncio.gather(*futures, return_exceptions=True):
            if isinstance(outcome, BaseException):
                _log.error("journal_not_joined", error=str(outcome))
        self.jobs, self._gathered = self.jobs + self._gathered, 0
        await asyncio.sleep(PAUSE_S)

    async def _rows(self, job: JobId, from_number: int) -> list[NewChunk]:
        try:
            return await load_chunks(
                self._database.readers, job, from_number=from_number, limit=ROWS_MAX
            )
        except PayloadDamaged as error:
            _log.error("job_damaged", job=job, error=str(error))
            return []
