"""Following a job: what a door reads its events from, and how long it waits before it answers.

A live job's channel keeps its latest events; older ones, and those of ended jobs, are read from the
journal by number. A follower subscribes first, then reads pages, then drops what it has: nothing is
missed and nothing is shown twice.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

import msgspec

from app.domain.errors import JobNotFound, StreamInterrupted
from app.domain.events import Ended, FollowedEvent, Output, Started
from app.domain.job import Durability, Ending
from app.services.clock import Clock
from app.services.fleet import Fleet
from app.services.ledger import Ledger, LiveJob
from app.services.recall import damage_told, decode_parts
from app.storage.database import Database
from app.storage.frames import NewChunk
from app.storage.journal import load_page
from app.storage.readers import Readers
from app.storage.reading import load_job
from app.storage.rows import JobRow
from app.streams.broadcast import Channel, Follower
from shared.ids import JobId

WORKER_CHECK_S = 0.25
"""How often a waiting door looks whether its model's worker has become ready."""

STARTED_SEQ = 1
"""``created`` is 0 and ``started`` 1 for every job."""


class EventFollower(Protocol):
    """The events of one job, in order."""

    async def take(self, timeout_s: float) -> list[FollowedEvent]:
        """The events since the last call; empty when none came in time. ``Ended`` is the last."""
        ...

    def close(self) -> None:
        """Stop following; calling it again does nothing."""
        ...


class Ticket(msgspec.Struct, frozen=True):
    """A submitted job and a follower that sees it from the start. ``replayed`` says that an
    earlier request with the same idempotency key had submitted it."""

    job_id: JobId
    created_at: datetime
    model: str
    follower: EventFollower
    replayed: bool = False


class Following:
    """Gives followers, and waits for a job's first event.

    Args:
        header_wait_s: how long a door waits for a status once a worker of the model is ready.
    """

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        fleet: Fleet,
        clock: Clock,
        header_wait_s: float,
    ) -> None:
        self._readers = database.readers
        self._ledger = ledger
        self._fleet = fleet
        self._clock = clock
        self._header_wait_s = header_wait_s
        self._open: set[JournalFollower] = set()

    def stop(self) -> None:
        """Every follower of a journaled job ends: its client goes on by number elsewhere."""
        for follower in list(self._open):
            follower.interrupt()

    async def follow(self, job_id: JobId, tenant: str, starting_after: int) -> EventFollower:
        """A follower of the events with higher numbers than ``starting_after``.

        Raises:
            JobNotFound: there is no such job of this tenant.
        """
        live = self._ledger.get(job_id)
        channel = live.channel if live is not None else None
        if await load_job(self._readers, job_id, tenant) is None:
            raise JobNotFound
        return self._journal_follower(job_id, channel, starting_after + 1)

    def _journal_follower(
        self, job_id: JobId, channel: Channel | None, from_seq: int
    ) -> "JournalFollower":
        follower = JournalFollower(self._readers, job_id, channel, from_seq, self._open.discard)
        self._open.add(follower)
        return follower

    def accompany(self, live: LiveJob) -> EventFollower:
        """The follower of the connection that a job was submitted by."""
        if live.new.durability is not Durability.STORED:
            return live.channel.follow()
        return self._journal_follower(live.id, live.channel, STARTED_SEQ)

    async def await_start(self, ticket: Ticket) -> FollowedEvent | None:
        """The first event; None when ``header_wait_s`` passed while a worker was ready.

        Time without a ready worker does not count: what happens then (a start that fails, a limit
        on waiting for it) ends the job, and that is an event.
        """
        left = self._header_wait_s
        follower = ticket.follower
        while left > 0:
            before = self._clock.monotonic()
            ready = self._fleet.is_ready(ticket.model)
            wait_s = left if ready else WORKER_CHECK_S
            if isinstance(follower, Follower | JournalFollower):
                event = await follower.take_one(wait_s)
                if event is not None:
                    return event
            if ready:
                left -= self._clock.monotonic() - before
        return None


class JournalFollower:
    """Reads what the channel no longer has from the journal, and the rest from the channel."""

    def __init__(
        self,
        readers: Readers,
        job: JobId,
        channel: Channel | None,
        from_seq: int,
        on_close: Callable[["JournalFollower"], None],
    ) -> None:
        self._readers = readers
        self._job = job
        self._channel = channel
        self._live = channel.follow() if channel is not None else None
        self._next = max(from_seq, STARTED_SEQ)  # what is before is known without asking
        self._number = 0
        self._behind = False
        self._ahead: list[FollowedEvent] = []
        self._on_close = on_close
        self._ended = False
        self._interrupted = False

    async def take(self, timeout_s: float) -> list[FollowedEvent]:
        """The events since the last call; empty when none came in time.

        Raises:
            JobNotFound: the job was deleted meanwhile.
            StorageDamaged: what comes next does not match its checksum.
            StreamInterrupted: the server is stopping.
        """
        if self._interrupted:
            raise StreamInterrupted
        if self._ahead:
            events, self._ahead = self._ahead, []
            return self._passed(events)
        if self._ended:
            return []
        if self._channel is None or self._behind or self._next < self._channel.first_seq:
            events = self._passed(await self._page())
            # Not until a page is empty: where many follow, something has always come meanwhile.
            self._behind = self._channel is not None and self._next < self._channel.first_seq
            if events or self._channel is None:
                return events
        if self._live is None:
            return []
        events = [event for event in await self._live.take(timeout_s) if self._fresh(event)]
        if self._interrupted and not events:
            raise StreamInterrupted
        if events and events[0].seq > self._next:
            self._behind = True  # while it waited: what was in the channel is in the store, too
            events = await self._page()
        return self._passed(events)

    async def take_one(self, timeout_s: float) -> FollowedEvent | None:
        """The next event alone; None when it did not come in time."""
        events = await self.take(timeout_s)
        if not events:
            return None
        self._ahead = [*events[1:], *self._ahead]
        return events[0]

    def close(self) -> None:
        """Stop following; calling it again does nothing."""
        self._on_close(self)
        if self._live is not None:
            self._live.close()

    def interrupt(self) -> None:
        """The server is stopping: end now."""
        self._interrupted = True
        if self._live is not None:
            self._live.wake()

    def _fresh(self, event: FollowedEvent) -> bool:
        return _last_seq(event) >= self._next or isinstance(event, Ended)

    def _passed(self, events: list[FollowedEvent]) -> list[FollowedEvent]:
        if events:
            self._next = max(self._next, _last_seq(events[-1]) + 1)
            self._ended = isinstance(events[-1], Ended)
        return events

    async def _page(self) -> list[FollowedEvent]:
        """Events from ``_next`` on that are in the store."""
        with damage_told(self._job):
            page = await load_page(self._readers, self._job, max(1, self._next), self._number)
        if page is None:
            raise JobNotFound("The job was deleted while it was being followed.")
        row, events = page.job, list[FollowedEvent]()
        if self._next <= STARTED_SEQ and row.started_at is not None:
            usage = row.usage
            events.append(Started(STARTED_SEQ, usage.prompt_tokens, usage.cached_tokens))
        if page.chunks and row.new.durability is not Durability.ATTACHED:
            self._number = page.chunks[-1].number + 1
            events += [_output(c) for c in page.chunks if c.last_event >= c.first_event]
        if page.last:
            events.append(Ended(row.events - 1, _ending(row)))
        return events


def _output(chunk: NewChunk) -> Output:
    return Output(chunk.first_event, chunk.choice, decode_parts(chunk), chunk.token_count)


def _last_seq(event: FollowedEvent) -> int:
    """The number of the last thing this event shows."""
    return event.last_seq if isinstance(event, Output) else event.seq


def _ending(row: JobRow) -> Ending:
    assert row.finalized_at is not None, "a final row has the time of its end"  # noqa: S101
    return Ending(
        job=row.new.id,
        attempt=row.attempt,
        state=row.state,
        finish_reason=row.finish_reason,
        failure=row.failure,
        usage=row.usage,
        finalized_at=row.finalized_at,
    )
