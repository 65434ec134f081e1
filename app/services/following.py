"""Following a job: what a door reads its events from, and how long it waits before it answers."""

from datetime import datetime

import msgspec

from app.domain.events import FollowedEvent
from app.services.clock import Clock
from app.services.fleet import Fleet
from app.streams.broadcast import Follower
from shared.ids import JobId


class Ticket(msgspec.Struct, frozen=True):
    """A submitted job and a follower that sees it from the start."""

    job_id: JobId
    created_at: datetime
    model: str
    follower: Follower


WORKER_CHECK_S = 0.25
"""How often a waiting door looks whether its model's worker has become ready."""


class Following:
    """Waits for a job's first event.

    Args:
        header_wait_s: how long a door waits for a status once a worker of the model is ready.
    """

    def __init__(self, fleet: Fleet, clock: Clock, header_wait_s: float) -> None:
        self._fleet = fleet
        self._clock = clock
        self._header_wait_s = header_wait_s

    async def await_start(self, ticket: Ticket) -> FollowedEvent | None:
        """The first event; None when ``header_wait_s`` passed while a worker was ready.

        Time without a ready worker does not count: what happens then (a start that fails, a limit
        on waiting for it) ends the job, and that is an event.
        """
        left = self._header_wait_s
        while left > 0:
            before = self._clock.monotonic()
            ready = self._fleet.is_ready(ticket.model)
            event = await ticket.follower.take_one(left if ready else WORKER_CHECK_S)
            if event is not None:
                return event
            if ready:
                left -= self._clock.monotonic() - before
        return None
