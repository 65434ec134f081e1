"""``GET /v1/jobs/{id}/events``: one more reader of a job, who may leave and come back."""

from collections.abc import Sequence
from typing import Any, Self

from litestar import Request, Response
from litestar.types import Receive, Scope, Send

from app.domain.events import Ended, FollowedEvent
from app.http.disconnect import ClientGone, Connection
from app.http.native.events import JobEvents
from app.http.native.query import followed_from
from app.http.ports import Follower, Following
from app.http.sse import EventStream, StreamedAnswer, StreamLimits
from shared.ids import JobId


class Watch:
    """Holds a follower, and lets go of it whatever happens. To the job it makes no difference."""

    def __init__(self, job_id: JobId, follower: Follower) -> None:
        self.subject = job_id
        self.ended = False
        self._follower = follower

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._follower.close()

    async def take(self, timeout_s: float) -> Sequence[FollowedEvent]:
        """What has happened since the last call; empty on time-out."""
        return self.seen(await self._follower.take(timeout_s))

    def seen(self, events: Sequence[FollowedEvent]) -> Sequence[FollowedEvent]:
        """Notes whether the job has ended with these events, and hands them on."""
        if events and isinstance(events[-1], Ended):
            self.ended = True
        return events


class EventsDoor:
    """Streams the events of jobs."""

    def __init__(self, following: Following[Any], limits: StreamLimits) -> None:
        self._following = following
        self._limits = limits

    def answer(self, request: Request[Any, Any, Any], job_id: JobId) -> Response[Any]:
        """The stream, from where the request says.

        Raises:
            InvalidRequest: the query makes no sense.
            JobNotFound: once the answer is served, and before its status is sent.
        """
        tenant, starting_after = followed_from(request)

        async def stream(_scope: Scope, receive: Receive, send: Send) -> None:
            follower = await self._following.follow(job_id, tenant, starting_after)
            with Watch(job_id, follower) as watch:
                await self._write(watch, JobEvents(job_id, starting_after), receive, send)

        return StreamedAnswer(stream)

    async def _write(self, watch: Watch, dialect: JobEvents, receive: Receive, send: Send) -> None:
        try:
            async with Connection(receive) as connection:
                stream = EventStream(
                    followed=watch,
                    dialect=dialect,
                    limits=self._limits,
                    connection=connection,
                    send=send,
                )
                await stream.write((), {})
        except ClientGone:
            pass  # the reader left; the job goes on
