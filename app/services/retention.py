"""Deleting what has been kept long enough, in small batches, when it is due.

One timer for the next job that expires; nothing is looked at in between. A job that ends sets the
timer anew when it is due earlier.
"""

import asyncio

import structlog

from app.domain.job import Ending
from app.services.clock import Clock
from app.services.endings import Endings
from app.services.ledger import LiveJob
from app.services.tasks import Tasks
from app.settings import RetentionSettings
from app.storage.database import Database
from app.storage.retention import delete_expired, load_expired, next_expiry

BATCH_PAUSE_S = 0.05
"""Between two batches, so that the writer serves others first."""

WAIT_MAX_S = 86_400.0
_log = structlog.get_logger("retention")


class Retention:
    """Sees to it that ended jobs go when their time is over."""

    def __init__(
        self,
        database: Database,
        tasks: Tasks,
        endings: Endings,
        clock: Clock,
        settings: RetentionSettings,
    ) -> None:
        self._database = database
        self._tasks = tasks
        self._clock = clock
        self._settings = settings
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        endings.on_ended.append(self._ended)

    def start(self) -> None:
        """Delete what is due, and wait for what will be."""
        self._run()

    def stop(self) -> None:
        """Delete no more."""
        self._busy = True
        if self._timer is not None:
            self._timer.cancel()

    def _ended(self, live: LiveJob, _ending: Ending) -> None:
        keep_s = self._settings.jobs_s if live.new.keep_s is None else live.new.keep_s
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer.when() > loop.time() + keep_s:
            self._wait(keep_s)

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(max(seconds, BATCH_PAUSE_S), WAIT_MAX_S), self._run)

    def _run(self) -> None:
        self._timer = None
        if self._busy:
            return
        self._busy = True
        self._tasks.spawn(self._pass(), "retention")

    async def _pass(self) -> None:
        """Delete batch after batch until nothing is due, then wait for the next."""
        readers, keep_s = self._database.readers, self._settings.jobs_s
        while expired := await load_expired(readers, self._clock.now(), keep_s):
            await self._database.writer.submit(delete_expired(expired))
            _log.info("expired_deleted", jobs=len(expired.jobs), keys=expired.keys)
            await asyncio.sleep(BATCH_PAUSE_S)
        self._busy = False
        due = await next_expiry(readers, keep_s)
        if due is not None and self._timer is None:
            self._wait((due - self._clock.now()).total_seconds())
