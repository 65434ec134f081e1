"""``GET /v1/reports/stream``: reports as they are committed, to readers who leave and come back."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import msgspec
from litestar import Request, Response
from litestar.types import Receive, Scope, Send

from app.domain.errors import JobServerError
from app.domain.feed import Cursor, Report
from app.http.disconnect import ClientGone, Connection
from app.http.errors import error_answer
from app.http.reports.asking import Reading, stream_asked
from app.http.reports.ports import ReportFollower, ReportPorts
from app.http.reports.schema import report_object
from app.http.sse import EventStream, StreamedAnswer, StreamLimits

_JSON: Final = msgspec.json.Encoder()


class Watch:
    """Holds a follower, and lets go of it whatever happens. It does not end by itself."""

    ended = False

    def __init__(self, follower: ReportFollower, on_silence: Callable[[], None]) -> None:
        self.subject = follower.name or "reports"
        self._follower = follower
        self._on_silence = on_silence

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._follower.close()

    async def take(self, timeout_s: float) -> Sequence[Report]:
        """What has come since the last call; empty on time-out."""
        reports = await self._follower.take(timeout_s)
        if not reports:
            self._on_silence()
        return reports

    def seen(self, events: Sequence[Report]) -> Sequence[Report]:
        """Hands them on."""
        return events


class ReportEvents:
    """Reports as server-sent events."""

    def __init__(self, epoch: str) -> None:
        self._epoch = epoch

    def opening(self) -> bytes:
        """A comment: the answer's head is sent at once, and the reader knows that it is heard."""
        return b": reading\n\n"

    def render(self, events: Sequence[Report]) -> bytes:
        """These reports, each under its place."""
        return b"".join(map(self._event, events))

    def failure(self, error: JobServerError) -> bytes:
        """Why this stream ends; no report, so it has no place."""
        return b"event: error\ndata: " + _JSON.encode(error_answer(error)) + b"\n\n"

    def _event(self, report: Report) -> bytes:
        place = Cursor(self._epoch, report.seq).written().encode("ascii")
        data = _JSON.encode(report_object(report, self._epoch))
        return b"id: " + place + b"\nevent: report\ndata: " + data + b"\n\n"


class ReportStreamDoor:
    """Streams reports."""

    def __init__(self, ports: ReportPorts, limits: StreamLimits) -> None:
        self._feed = ports.feed
        self._consumers = ports.consumers
        self._limits = limits

    def answer(self, request: Request[Any, Any, Any]) -> Response[Any]:
        """The stream, from where its reader stands.

        Raises:
            InvalidRequest: the query makes no sense.
            JobServerError: once the answer is served, and before its status is sent.
        """
        asked = stream_asked(request)

        async def stream(_scope: Scope, receive: Receive, send: Send) -> None:
            with await self._watch(asked) as watch:
                await self._write(watch, receive, send)

        return StreamedAnswer(stream)

    async def _watch(self, asked: Reading) -> Watch:
        if asked.consumer is None:
            after = (await self._feed.state()).last
            if asked.after is not None:
                after = await self._feed.check(asked.after)
            return Watch(self._feed.follow(asked.selection, after), _nothing)
        consumer, follower = await self._consumers.follow(asked.consumer, asked.tenant, asked.after)
        return Watch(follower, lambda: self._consumers.heard(consumer, consumer.passed))

    async def _write(self, watch: Watch, receive: Receive, send: Send) -> None:
        try:
            async with Connection(receive) as connection:
                stream = EventStream(
                    followed=watch,
                    dialect=ReportEvents(self._feed.epoch),
                    limits=self._limits,
                    connection=connection,
                    send=send,
                )
                await stream.write((), {})
        except ClientGone:
            pass  # the reader left; its place is kept


def _nothing() -> None:
    """A reader without a place is not missed."""
