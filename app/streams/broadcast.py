"""One job's events and its followers.

A channel keeps the events of a live job in order; a follower is a cursor into them and one future
to wake it. So a follower that reads slowly costs no copy, one that starts late misses nothing, and
no queue can overflow: what is kept is bounded by the job's own output.
"""

import asyncio

from app.domain.events import Ended, FollowedEvent


class Channel:
    """The events of one job, shown so far."""

    __slots__ = ("_followers", "events")

    def __init__(self) -> None:
        self.events: list[FollowedEvent] = []
        self._followers: list[Follower] = []

    def publish(self, event: FollowedEvent) -> None:
        """Show the next event to every follower."""
        self.events.append(event)
        for follower in self._followers:
            follower.wake()

    def follow(self) -> "Follower":
        """A follower that sees every event from the first on."""
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
        if self._next >= len(self._channel.events):
            await self._wait(timeout_s)
        events = self._channel.events[self._next :]
        self._next += len(events)
        return events

    async def take_one(self, timeout_s: float) -> FollowedEvent | None:
        """The next event alone; None when it did not come in time."""
        if self._next >= len(self._channel.events):
            await self._wait(timeout_s)
        if self._next >= len(self._channel.events):
            return None
        self._next += 1
        return self._channel.events[self._next - 1]

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
