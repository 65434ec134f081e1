"""Keeping the feed within its bounds: consumers that stay away are parked, and at the byte cap the
slowest one is, so that nobody who forgot to read fills the disk.

One timer for the consumer whose time runs out next. Time counts by both clocks: one that is set
forward parks nobody who was just heard of, and after a start everybody gets ``GRACE_S`` to return.
"""

import asyncio
from datetime import timedelta
from typing import Final

import structlog

from app.domain.feed import Consumer, ConsumerState
from app.domain.report_errors import ConsumerParked
from app.services.clock import Clock
from app.services.consumers import Consumers
from app.services.report_feed import ReportFeed
from app.services.tasks import Tasks
from app.settings import RetentionSettings
from app.storage.consumers import load_consumers, load_slowest, park_consumer
from app.storage.database import Database
from app.storage.operations import Committed
from app.storage.report_retention import delete_reports, load_excess_reports

GRACE_S: Final = 3600.0
LOOK_S: Final = 30.0
"""After something was published, how long until the feed's size is looked at."""

WAIT_MAX_S: Final = 86_400.0
BATCH_PAUSE_S: Final = 0.05

_log = structlog.get_logger("parking")


class Parking:
    """Parks consumers."""

    def __init__(
        self,
        database: Database,
        feed: ReportFeed,
        consumers: Consumers,
        tasks: Tasks,
        clock: Clock,
        settings: RetentionSettings,
    ) -> None:
        self._database = database
        self._feed = feed
        self._consumers = consumers
        self._tasks = tasks
        self._clock = clock
        self._settings = settings
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._stopped = False
        self._started_at = 0.0
        self.parked = 0

    def start(self) -> None:
        """Look now, and whenever there may be something to do."""
        self._started_at = self._clock.monotonic()
        self._database.writer.on_published.append(lambda: self._look_in(LOOK_S))
        self._look()

    def stop(self) -> None:
        """Park nobody any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _look_in(self, seconds: float) -> None:
        """Look in so many seconds, unless that is to be sooner anyway."""
        loop = asyncio.get_running_loop()
        if self._stopped or (self._timer and self._timer.when() <= loop.time() + seconds):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._busy and not self._stopped:
            self._busy = True
            self._tasks.spawn(self._pass(), "parking")

    async def _pass(self) -> None:
        wait_s = WAIT_MAX_S
        try:
            wait_s = await self._park_absent()
            await self._make_room()
        finally:
            self._busy = False
            self._look_in(max(wait_s, BATCH_PAUSE_S))

    async def _park_absent(self) -> float:
        """Park who stayed away for too long; the seconds until the next one has."""
        waits = [WAIT_MAX_S]
        for consumer in await load_consumers(self._database.readers):
            if consumer.state is ConsumerState.PARKED:
                continue
            left_s = self._left_s(consumer)
            if left_s > 0:
                waits.append(left_s)
            else:
                expiry = timedelta(seconds=self._settings.consumer_expiry_s)
                await self._park(consumer, f"it was not heard of for {expiry}")
        return min(waits)

    def _left_s(self, consumer: Consumer) -> float:
        """How long this consumer may still stay away."""
        expiry_s, now = self._settings.consumer_expiry_s, self._clock.monotonic()
        if self._feed.follows(consumer.name):
            return expiry_s
        heard_at = self._consumers.heard_at.get(consumer.name)
        if heard_at is not None:
            return heard_at + expiry_s - now
        by_row = expiry_s - (self._clock.now() - consumer.seen_at).total_seconds()
        return max(by_row, self._started_at + min(GRACE_S, expiry_s) - now)

    async def _make_room(self) -> None:
        """Bring the feed under its cap: by what everybody has read, then by what the slowest has
        not."""
        readers, cap = self._database.readers, self._settings.reports_bytes_max
        while (excess := (await self._feed.state()).bytes - cap) > 0:
            through = await load_excess_reports(readers, excess)
            if through is not None:
                await self._database.writer.submit(delete_reports(through))
                await asyncio.sleep(BATCH_PAUSE_S)
                continue
            slowest = await load_slowest(readers)
            if slowest is None:
                return
            await self._park(slowest, f"it kept the feed over its {cap} bytes")

    async def _park(self, consumer: Consumer, reason: str) -> None:
        outcome = await self._database.writer.submit(park_consumer(consumer, reason))
        if isinstance(outcome, Committed):
            self.parked += 1
            _log.warning("consumer_parked", consumer=consumer.name, reason=reason)
            self._feed.end(consumer.name, ConsumerParked(f"The consumer was parked: {reason}."))
