"""Consumers: readers of the feed with a place that the server keeps, and how they move it.

A consumer reads what lies behind its place and acknowledges what it is done with. Between the two
it may be killed: then it is shown the same reports again, under the same ids. Acknowledging is
compare-and-set where the reader says where it stood.
"""

from contextlib import suppress
from typing import Final

import structlog

from app.domain.errors import ServerOverloaded, StorageFull
from app.domain.feed import Consumer, ConsumerState, Cursor, Page, Selection, Start
from app.domain.report_errors import (
    ConsumerExists,
    ConsumerNotFound,
    ConsumerParked,
    CursorAhead,
    CursorMoved,
    FeedEpochChanged,
)
from app.services.clock import Clock
from app.services.report_feed import ReportFeed, ReportFollower
from app.storage.consumers import (
    ack_consumer,
    consumer_seen,
    delete_consumer,
    insert_consumer,
    load_consumer,
    load_consumers,
)
from app.storage.database import Database
from app.storage.errors import StoreFull
from app.storage.operations import Committed, Operation

SEEN_EVERY_S: Final = 60.0
"""How often it is written down that a consumer was heard of."""

_log = structlog.get_logger("consumers")


class Consumers:
    """Makes, reads for, moves and deletes consumers. A tenant of None is the operator."""

    def __init__(self, database: Database, feed: ReportFeed, clock: Clock) -> None:
        self._readers = database.readers
        self._writer = database.writer
        self._feed = feed
        self._clock = clock
        self.heard_at: dict[str, float] = {}
        """When each consumer was heard of, by this process and its monotonic clock."""
        self._written_at: dict[str, float] = {}

    async def create(self, name: str, selection: Selection, start: Start) -> tuple[Consumer, bool]:
        """The consumer of this name, and whether it is new. One that was parked begins anew.

        Raises:
            ConsumerExists: it is there already, and reads other reports.
            StorageFull: the disk is full.
        """
        new = await self._write(insert_consumer(name, selection, start, self._clock.now()))
        found = await load_consumer(self._readers, name)
        if found is None:
            raise ConsumerNotFound
        if not new and found.selection != selection:
            raise ConsumerExists
        if new:
            self._written_at.pop(name, None)
            _log.info("consumer_created", consumer=name, start=start, at=found.acked)
        self.heard_at[name] = self._clock.monotonic()
        return found, new

    async def list(self, tenant: str | None) -> list[Consumer]:
        """All of a tenant's, by name; not the server's own."""
        found = await load_consumers(self._readers)
        return [consumer for consumer in found if _visible(consumer, tenant)]

    async def get(self, name: str, tenant: str | None) -> Consumer:
        """This one, live or parked.

        Raises:
            ConsumerNotFound: this tenant has none of this name.
        """
        found = await load_consumer(self._readers, name)
        if found is None or not _visible(found, tenant):
            raise ConsumerNotFound
        return found

    async def delete(self, name: str, tenant: str | None) -> None:
        """Its place is kept no longer.

        Raises:
            ConsumerNotFound: this tenant has none of this name.
        """
        await self.get(name, tenant)
        if not await self._write(delete_consumer(name)):
            raise ConsumerNotFound
        self.heard_at.pop(name, None)
        self._written_at.pop(name, None)
        self._feed.end(name, ConsumerNotFound("The consumer was deleted."))

    async def page(self, name: str, tenant: str | None, limit: int) -> tuple[Consumer, Page]:
        """What it has not acknowledged, from the first on.

        Raises:
            ConsumerNotFound: this tenant has none of this name.
            ConsumerParked: its place is not kept.
        """
        consumer = await self._live(name, tenant)
        page = await self._feed.page(consumer.selection, consumer.acked, limit)
        self.heard(consumer, page.reports[0].seq - 1 if page.reports else page.next)
        return consumer, page

    async def follow(
        self, name: str, tenant: str | None, seen: Cursor | None
    ) -> tuple[Consumer, ReportFollower]:
        """The same as it comes, from behind what its reader says that it has.

        Raises:
            ConsumerNotFound: this tenant has none of this name.
            ConsumerParked: its place is not kept.
            FeedEpochChanged, CursorAhead: ``seen`` is no place of this feed.
        """
        consumer = await self._live(name, tenant)
        after = (
            consumer.acked if seen is None else max(consumer.acked, await self._feed.check(seen))
        )
        self.heard(consumer, consumer.passed)
        return consumer, self._feed.follow(consumer.selection, after, name)

    async def ack(
        self, name: str, tenant: str | None, through: Cursor, expected: Cursor | None
    ) -> Consumer:
        """Everything up to ``through`` is done; with ``expected`` only if it stands there still.
        What was acknowledged before is so again, without harm.

        Raises:
            ConsumerNotFound: this tenant has none of this name.
            ConsumerParked: its place is not kept.
            FeedEpochChanged: a cursor is of another numbering.
            CursorAhead: no such place has been committed.
            CursorMoved: it stands elsewhere.
            StorageFull: the disk is full.
        """
        await self._live(name, tenant)
        for cursor in (through, expected):
            if cursor is not None and cursor.epoch != self._feed.epoch:
                raise FeedEpochChanged(f"The feed's epoch is '{self._feed.epoch}' now.")
        from_seq = None if expected is None else expected.seq
        self.heard_at[name] = self._clock.monotonic()
        done = await self._write(ack_consumer(name, through.seq, self._clock.now(), from_seq))
        found = await self._live(name, tenant)
        if not done and found.acked != through.seq:
            await self._refuse(through, found)
        return found

    def heard(self, consumer: Consumer, passed: int) -> None:
        """It is there, and nothing up to ``passed`` that it has not acknowledged concerns it."""
        now = self._clock.monotonic()
        self.heard_at[consumer.name] = now
        written_at = self._written_at.get(consumer.name)
        if written_at is None or now - written_at >= SEEN_EVERY_S:
            with suppress(ServerOverloaded):  # it is heard of again
                self._writer.submit(consumer_seen(consumer, passed, self._clock.now()))
                self._written_at[consumer.name] = now

    async def _live(self, name: str, tenant: str | None) -> Consumer:
        found = await self.get(name, tenant)
        if found.state is ConsumerState.PARKED:
            raise await self.parked(found)
        return found

    async def parked(self, found: Consumer) -> ConsumerParked:
        """What its reader is told."""
        lowest = (await self._feed.state()).lowest
        error = ConsumerParked(
            f"The consumer was parked: {found.parked_reason}. It had acknowledged up to"
            f" {found.acked}; the lowest report that is kept is {lowest}. Create it again to go on."
        )
        error.place = Cursor(self._feed.epoch, lowest)
        return error

    async def _refuse(self, through: Cursor, found: Consumer) -> None:
        last = (await self._feed.state()).last
        if through.seq > last:
            raise CursorAhead(f"The feed ends at {last}.")
        error = CursorMoved(f"The consumer stands at {found.acked}, not where `from` says.")
        error.place = Cursor(self._feed.epoch, found.acked)
        raise error

    async def _write(self, operation: Operation) -> bool:
        try:
            return isinstance(await self._writer.submit(operation), Committed)
        except StoreFull as error:
            raise StorageFull from error


def _visible(consumer: Consumer, tenant: str | None) -> bool:
    return not consumer.internal and tenant in (None, consumer.selection.tenant)
