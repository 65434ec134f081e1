"""One job's events and its followers.

A channel keeps the events of a live job in order; a follower is a cursor into them and one future
to wake it. So a follower that reads slowly costs no copy, and no queue can overflow. A channel
whose job is journaled keeps its latest ``EVENTS_KEPT`` only: a follower that fell behind them, or
starts before them, reads the journal up to ``first_seq``. An attached job's channel keeps
everything: what there is of it is bounded by the job's own output, and there is no other copy.
"""

import asyncio
from typing import Final

from app.domain.events import Ended, FollowedEvent

EVENTS_KEPT: Final = 512


class Channel:
    """The events of one job, shown so far.

    Attributes:
        first_seq: the lowest event number that is still kept (the next one when none is).
    """

    __slots__ = ("_bounded", "_followers", "base", "events", "first_seq")

    def __init__(self, *, first_seq: int = 1, bounded: bool = False) -> None:
        self.events: list[FollowedEvent] = []
        self.base = 0
        self.first_seq = first_seq
        self._bounded = bounded
        self._followers: list[Follower] = []

    def publish(self, event: FollowedEvent) -> None:
        """Show the next event to every follower."""
        self.events.append(event)
        if self._bounded and len(self.events) > 2 * EVENTS_KEPT:
            self._drop(len(self.events) - EVENTS_KEPT)
        for follower in self._followers:
            follower.wake()

    def follow(self) -> "Follower":
        """A follower that sees every event that is kept, from the first on."""
        follower = Follower(self)
        self._followers.append(follower)
        return follower

    def forget(self, follower: "Follower") -> None:
        """Stop waking this follower."""
        if follower in self._followers:
            self._followers.remove(follower)

    @property
    def ended(self) -> bool:
        """Whether the last event has been shown."""
        return bool(self.events) and isinstance(self.events[-1], Ended)

    def _drop(self, count: int) -> None:
        del self.events[:count]
        self.base += count
        self.first_seq = self.events[0].seq


class Follower:
    """One reader of a channel. Not shared between tasks."""

    __slots__ = ("_channel", "_next", "_waiter")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._next = 0
        self._waiter: asyncio.Future[None] | None = None

    async def take(self, timeout_s: float) -> list[FollowedEvent]:
        """The events since the last call, waiting for one; empty when none came in time.

        ``Ended`` is always the last event there is.
        """
        channel = self._channel
        if self._next >= channel.base + len(channel.events):
            await self._wait(timeout_s)
        events = channel.events[max(0, self._next - channel.base) :]
        self._next = channel.base + len(channel.events)
        return events

    async def take_one(self, timeout_s: float) -> FollowedEvent | None:
        """The next event alone; None when it did not come in time."""
        channel = self._channel
        if self._next >= channel.base + len(channel.events):
            await self._wait(timeout_s)
        if self._next >= channel.base + len(channel.events):
            return None
        at = max(self._next, channel.base)
        self._next = at + 1
        return channel.events[at - channel.base]

    def wake(self) -> None:
        """There is something to take."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        """Stop following; calling it again does nothing."""
        self._channel.forget(self)
        self.wake()

    async def _wait(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(timeout_s, self.wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
