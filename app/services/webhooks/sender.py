"""One endpoint and what is sent to it: one event at a time, in the order of the feed.

A sender reads the feed as its endpoint's consumer. What cannot be delivered is set aside with a
time for its next try, and the next event is taken; when that is, ``webhook_retrying`` decides.
How a try ended is written down together with the consumer's place, so whatever is killed, an event
is delivered, waits, or lies ahead of the cursor. It is sent again when nobody knows whether it
arrived: under the same id, with the same bytes.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

import structlog

from app.domain.feed import Consumer, Report
from app.domain.webhook_retrying import (
    LONGEST_S,
    Row,
    Verdict,
    asked_for_s,
    begun,
    tried,
    verdict,
)
from app.domain.webhooks import (
    ASIDE_MAX,
    Delivery,
    DeliveryState,
    Endpoint,
    Event,
    Try,
    event_id,
    type_of,
)
from app.services.clock import Clock
from app.services.report_feed import ReportFeed
from app.services.webhooks.bodies import Bodies
from app.services.webhooks.signing import signed
from app.storage.consumers import ack_consumer, ack_step
from app.storage.database import Database
from app.storage.deliveries import load_waiting, record
from app.storage.operations import Committed, Operation, Step
from app.storage.webhooks import disable_step

IDLE_S: Final = 600.0
"""How long is waited for an event when nothing is to be done besides."""

PASS_S: Final = 5.0
"""After so long it is written down that nothing up to here concerns an endpoint: else the feed
would be kept for its sake."""

GONE_REASON: Final = "it answered 410: it wants nothing more"

_log = structlog.get_logger("webhooks")


class Answered(Protocol):
    """What came of a try."""

    @property
    def status(self) -> int | None: ...
    @property
    def error(self) -> str | None: ...
    @property
    def retry_after(self) -> str | None: ...
    @property
    def took_ms(self) -> int: ...


class Posts(Protocol):
    """Sends to one receiver."""

    async def post(self, url: str, headers: dict[str, str], body: bytes) -> Answered:
        """One try. Does not raise for what the other side does."""
        ...

    async def close(self) -> None:
        """Let go of the connection."""
        ...


@dataclass(slots=True)
class Counts:
    """What was sent since the start, by all senders."""

    delivered: int = 0
    failed: int = 0
    parked: int = 0
    delay_s: float = 0.0
    """Of the latest delivery, from the ending that it tells of."""


@dataclass(frozen=True, slots=True)
class Outfit:
    """What senders share. ``give_up_s``: for how long a delivery is tried."""

    database: Database
    feed: ReportFeed
    bodies: Bodies
    clock: Clock
    chance: Callable[[], float]
    counts: Counts
    give_up_s: float


@dataclass(slots=True)
class Aside:
    """A delivery that waits. Its times are the monotonic clock's."""

    delivery: Delivery
    due: float
    until: float


class Superseded(Exception):
    """Somebody else has moved the consumer or the endpoint: look at it anew."""


class Sender:
    """Sends to one endpoint until it is cancelled, or may not go on (``Superseded``,
    ``JobServerError`` of the feed)."""

    def __init__(
        self, endpoint: Endpoint, consumer: Consumer, posts: Posts, outfit: Outfit
    ) -> None:
        self._endpoint = endpoint
        self._posts = posts
        self._outfit = outfit
        self._clock = outfit.clock
        self._acked = consumer.acked
        self._moved_at = outfit.clock.monotonic()
        self._follower = outfit.feed.follow(consumer.selection, consumer.acked, consumer.name)
        self._fresh: deque[tuple[Report, Event | None]] = deque()
        self._aside: dict[str, Aside] = {}
        self._row = Row()
        self._resume_at = 0.0

    @property
    def waiting(self) -> int:
        """Events that were tried, and will be again."""
        return len(self._aside)

    async def run(self) -> None:
        """Send what there is, and what comes."""
        try:
            await self._remember()
            while True:
                await self._step()
        finally:
            self._follower.close()
            await self._posts.close()

    async def _remember(self) -> None:
        """What was set aside before."""
        now = self._clock.now()
        for delivery in await load_waiting(self._outfit.database.readers, self._endpoint.id):
            self._set_aside(delivery, now)

    async def _step(self) -> None:
        """One try, or waiting for something to try."""
        pause_s = self._resume_at - self._clock.monotonic()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        elif (aside := self._due()) is not None:
            await self._try_again(aside)
        elif self._fresh:
            await self._try_first(*self._fresh.popleft())
        else:
            await self._take(self._wait_s())

    def _due(self) -> Aside | None:
        now = self._clock.monotonic()
        due = [aside for aside in self._aside.values() if aside.due <= now]
        return min(due, key=lambda aside: aside.delivery.seq, default=None)

    def _wait_s(self) -> float:
        """Until the next one that was set aside is due."""
        now = self._clock.monotonic()
        return min((aside.due - now for aside in self._aside.values()), default=IDLE_S)

    async def _take(self, wait_s: float) -> None:
        """Read on in the feed, unless too much waits already."""
        if len(self._aside) >= ASIDE_MAX:
            await asyncio.sleep(wait_s)
            return
        unpassed = self._follower.cursor > self._acked
        reports = await self._follower.take(
            min(wait_s, PASS_S if unpassed else IDLE_S), passing_s=PASS_S
        )
        mine = [report for report in reports if self._wants(report)]
        if mine:
            self._fresh.extend(zip(mine, await self._outfit.bodies.of(mine), strict=True))
        elif self._follower.cursor > self._acked and (not reports or self._stood_long):
            await self._pass(self._follower.cursor)

    @property
    def _stood_long(self) -> bool:
        return self._clock.monotonic() - self._moved_at >= PASS_S

    def _moved(self, through: int) -> None:
        self._acked, self._moved_at = through, self._clock.monotonic()

    def _wants(self, report: Report) -> bool:
        return type_of(report) in self._endpoint.event_types

    async def _pass(self, through: int) -> None:
        """Nothing up to here concerns this endpoint, or all of it is done."""
        name, now = self._endpoint.consumer, self._clock.now()
        await self._write(ack_consumer(name, through, now, self._acked))
        self._moved(through)

    async def _try_first(self, report: Report, event: Event | None) -> None:
        now, mono = self._clock.now(), self._clock.monotonic()
        name, type_ = event_id(report), type_of(report)
        delivery = begun(self._endpoint.id, name, report.seq, type_, now)
        step = ack_step(self._endpoint.consumer, report.seq, now, self._acked)
        if event is None:
            await self._park_damaged(delivery, step)
        else:
            await self._try(Aside(delivery, mono, mono + self._outfit.give_up_s), event, step)
        self._moved(report.seq)

    async def _try_again(self, aside: Aside) -> None:
        event = await self._outfit.bodies.stored(aside.delivery.event)
        if event is not None:
            await self._try(aside, event)
            return
        await self._park_damaged(aside.delivery)
        del self._aside[aside.delivery.event]

    async def _park_damaged(self, delivery: Delivery, *further: Step) -> None:
        """What it was is not known any more, so nothing else is sent in its place."""
        now = self._clock.now()
        attempt = Try(at=now, took_ms=0, error="the stored event is damaged")
        told, _ = tried(delivery, attempt, Verdict.FAILED, now, 0, 0)
        await self._write(record(told, *further))
        self._outfit.counts.parked += 1
        _log.error("event_damaged", endpoint=self._endpoint.id, webhook=delivery.event)

    async def _try(self, aside: Aside, event: Event, *further: Step) -> None:
        endpoint, began = self._endpoint, self._clock.now()
        headers = signed(event.id, event.body, endpoint.secrets(began), began)
        answer = await self._posts.post(endpoint.url, headers, event.body)
        now, mono, came = self._clock.now(), self._clock.monotonic(), verdict(answer.status)
        asked_s = asked_for_s(answer.retry_after, now) if came is Verdict.FAILED else 0.0
        attempt = Try(at=began, took_ms=answer.took_ms, status=answer.status, error=answer.error)
        told, pause_s = tried(
            aside.delivery, attempt, came, now, aside.until - mono, self._outfit.chance(), asked_s
        )
        if came is Verdict.GONE:
            further = (*further, disable_step(endpoint.id, GONE_REASON, now))
        await self._write(record(told, *further))
        self._account(Aside(told, mono + pause_s, aside.until), came, event, asked_s)
        if came is Verdict.GONE:
            raise Superseded

    async def _write(self, operation: Operation) -> None:
        if not isinstance(await self._outfit.database.writer.submit(operation), Committed):
            raise Superseded

    def _account(self, aside: Aside, came: Verdict, event: Event, asked_s: float) -> None:
        """What was written down, in memory."""
        now = self._clock.now()
        counts, told = self._outfit.counts, aside.delivery
        if told.state is DeliveryState.WAITING:
            self._aside[event.id] = aside
        else:
            self._aside.pop(event.id, None)
        if came is Verdict.DELIVERED:
            counts.delivered += 1
            counts.delay_s = (now - event.created_at).total_seconds()
            for name in self._row.success() & self._aside.keys():
                self._aside[name].due = self._clock.monotonic()
            return
        counts.failed += 1
        counts.parked += told.state is DeliveryState.PARKED
        pause_s = self._row.failure(event.id, self._outfit.chance, asked_s)
        self._resume_at = self._clock.monotonic() + pause_s
        _log.warning(
            "webhook_failed",
            endpoint=self._endpoint.id,
            webhook=event.id,
            tries=told.tries,
            state=told.state,
            status=told.log[-1].status,
            error=told.log[-1].error,
        )

    def _set_aside(self, delivery: Delivery, now: datetime) -> None:
        """By the clock on the wall, which may have jumped: so within what either time can be."""
        mono, give_up_s = self._clock.monotonic(), self._outfit.give_up_s
        wait_s = ((delivery.next_at or now) - now).total_seconds()
        left_s = give_up_s - (now - delivery.first_at).total_seconds()
        due = mono + min(max(wait_s, 0.0), 2 * LONGEST_S)
        until = mono + min(max(left_s, 0.0), give_up_s)
        self._aside[delivery.event] = Aside(delivery, due, until)
