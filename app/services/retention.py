"""Deleting what has been kept long enough, in small batches, when it is due.

One timer for whatever is due next; nothing is looked at in between. A job that ends sets the timer
anew when it is due earlier. A job with a keep time of its own is kept for so long by the monotonic
clock too, so that a clock that is set forward deletes nothing early.
"""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import structlog

from app.domain.job import Ending
from app.services.clock import Clock
from app.services.endings import Endings
from app.services.fleet import Fleet
from app.services.ledger import LiveJob
from app.services.tasks import Tasks
from app.settings import RetentionSettings
from app.storage.database import Database
from app.storage.deliveries import delete_parked, oldest_parked
from app.storage.report_retention import delete_reports, load_old_reports, oldest_report
from app.storage.retention import Expired, delete_expired, load_expired, next_expiry
from app.supervision.log_file import prune
from shared.ids import JobId

BATCH_PAUSE_S = 0.05
"""Between two batches, so that the writer serves others first."""

WAIT_MAX_S = 86_400.0
RETRY_S = 60.0
"""After a pass that failed."""

_log = structlog.get_logger("retention")


class Retention:
    """Sees to it that jobs, reports and logs go when their time is over.

    Args:
        logs: the directory of the workers' logs.
    """

    def __init__(
        self,
        database: Database,
        tasks: Tasks,
        endings: Endings,
        fleet: Fleet,
        clock: Clock,
        settings: RetentionSettings,
        logs: Path,
    ) -> None:
        self._database = database
        self._tasks = tasks
        self._fleet = fleet
        self._clock = clock
        self._settings = settings
        self._logs = logs
        self._kept_until = dict[JobId, float]()
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._stopped = False
        self.jobs_deleted = 0
        endings.on_ended.append(self._ended)

    def start(self) -> None:
        """Delete what is due, and wait for what will be."""
        self._run()

    def stop(self) -> None:
        """Delete no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _ended(self, live: LiveJob, _ending: Ending) -> None:
        keep_s = live.new.keep_s
        if keep_s is not None:
            self._kept_until[live.id] = self._clock.monotonic() + keep_s
        kept_s = self._settings.jobs_s if keep_s is None else keep_s
        self._wait_at_most(min(kept_s, self._settings.reports_s))

    def _wait_at_most(self, seconds: float) -> None:
        """Look in so many seconds, unless that is to be sooner anyway."""
        if self._timer is not None and seconds >= WAIT_MAX_S:
            return  # nobody waits longer; this is asked for every job that ends
        loop = asyncio.get_running_loop()
        seconds = min(max(seconds, BATCH_PAUSE_S), WAIT_MAX_S)
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._run)

    def _run(self) -> None:
        self._timer = None
        if not self._busy and not self._stopped:
            self._busy = True
            self._tasks.spawn(self._pass(), "retention")

    async def _pass(self) -> None:
        """Delete batch after batch until nothing is due, then wait for the next."""
        wait_s = RETRY_S
        try:
            await self._delete_jobs()
            await self._delete_reports()
            oldest_log = await asyncio.to_thread(self._delete_logs)
            wait_s = await self._wait_s(oldest_log)
        finally:
            self._busy = False
            if not self._stopped:
                self._wait_at_most(wait_s)

    async def _delete_jobs(self) -> None:
        readers, keep_s = self._database.readers, self._settings.jobs_s
        while expired := self._ripe(await load_expired(readers, self._clock.now(), keep_s)):
            await self._database.writer.submit(delete_expired(expired))
            for job in expired.jobs:
                self._kept_until.pop(job, None)
            self.jobs_deleted += len(expired.jobs)
            _log.info("expired_deleted", jobs=len(expired.jobs), keys=expired.keys)
            await asyncio.sleep(BATCH_PAUSE_S)

    def _ripe(self, expired: Expired) -> Expired:
        now = self._clock.monotonic()
        ripe = tuple(job for job in expired.jobs if self._kept_until.get(job, now) <= now)
        return msgspec.structs.replace(expired, jobs=ripe)

    async def _delete_reports(self) -> None:
        before = self._clock.now() - timedelta(seconds=self._settings.reports_s)
        readers, writer = self._database.readers, self._database.writer
        while (through := await load_old_reports(readers, before)) is not None:
            await writer.submit(delete_reports(through))
            await asyncio.sleep(BATCH_PAUSE_S)
        parked = await oldest_parked(readers)
        if parked is not None and parked < before:
            await writer.submit(delete_parked(before))

    def _delete_logs(self) -> float | None:
        before = self._clock.now().timestamp() - self._settings.logs_s
        return prune(self._logs, before, {worker.log_path.name for worker in self._fleet})

    async def _wait_s(self, oldest_log: float | None) -> float:
        """Until the next thing is due."""
        readers, settings, now = self._database.readers, self._settings, self._clock.now()
        waits = [_seconds(await next_expiry(readers, settings.jobs_s), now)]
        oldest = (await oldest_report(readers), await oldest_parked(readers))
        waits += [_seconds(moment, now) + settings.reports_s for moment in oldest]
        if oldest_log is not None:
            waits.append(oldest_log - now.timestamp() + settings.logs_s)
        wait_s = min(waits)
        if wait_s <= 0 and self._kept_until:  # by the other clock it is not due yet
            return min(self._kept_until.values()) - self._clock.monotonic()
        return wait_s


def _seconds(moment: datetime | None, now: datetime) -> float:
    return WAIT_MAX_S if moment is None else (moment - now).total_seconds()
