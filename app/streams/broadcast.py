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

TIMER_SLACK_S: Final = 0.002
"""The event loop counts in milliseconds, and may ring that much early."""


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
    """One reader of a channel. Not shared between tasks.

    It waits anew for every event, and most waits end long before their time: so one timer stays set
    over many of them, and looks when it rings whether the wait of then has lasted.
    """

    __slots__ = ("_channel", "_due", "_next", "_rings_at", "_timer", "_waiter")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._next = 0
        self._waiter: asyncio.Future[None] | None = None
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0

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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _wait(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        self._due = loop.time() + timeout_s
        if self._timer is None or self._rings_at > self._due:
            self._set_timer(loop)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = self._due
        self._timer = loop.call_at(self._due, self._rang)

    def _rang(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        loop = asyncio.get_running_loop()
        if loop.time() + TIMER_SLACK_S >= self._due:
            self.wake()
        else:
            self._set_timer(loop)
