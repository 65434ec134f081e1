"""A job tied to the connection that asked for it: when that goes, the job is cancelled.

Only then: not when it is the server that closes the connection, and not for a connection that asked
for a job which another one had submitted.
"""

from collections.abc import Sequence
from typing import Self

from app.domain.errors import StreamInterrupted
from app.domain.events import Ended, FollowedEvent
from app.http.ports import Cancellation, Ticket
from shared.ids import JobId


class Attachment:
    """Holds the follower of an attached job, and lets go of both whatever happens.

    Leaving the context is synchronous, so a cancelled handler cannot be stopped from it. A job that
    was not seen to end is cancelled there: nobody is left who could be shown its ending.
    """

    def __init__(self, ticket: Ticket, cancellation: Cancellation) -> None:
        self.ticket = ticket
        self.ended = False
        self._ours = not ticket.replayed
        self._cancellation = cancellation

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.ticket.follower.close()
        if not self.ended and self._ours:
            self._cancellation.request_nowait(self.ticket.job_id)

    @property
    def subject(self) -> JobId:
        """The job."""
        return self.ticket.job_id

    async def take(self, timeout_s: float) -> Sequence[FollowedEvent]:
        """What has happened since the last call; empty on time-out."""
        try:
            return self.seen(await self.ticket.follower.take(timeout_s))
        except StreamInterrupted:
            self._ours = False  # the server is stopping: the job goes on at its next start
            raise

    def seen(self, events: Sequence[FollowedEvent]) -> Sequence[FollowedEvent]:
        """Notes whether the job has ended with these events, and hands them on."""
        if events and isinstance(events[-1], Ended):
            self.ended = True
        return events
