"""Server-sent events: those of one job, or of the feed of reports, written to one connection.

The status is fixed before the first byte, by whoever opens the stream; from then on every failure
is a frame of the stream, and the stream always ends properly. A reader that is slow holds up its
own coroutine only; one that does not read at all is treated as gone after a while.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import structlog
from litestar import Response
from litestar.types import ASGIApp, Send
from typing_extensions import override

from app.domain.errors import InternalError, JobServerError, StreamInterrupted
from app.http.disconnect import Connection
from app.http.stall import StallTimer

PING: Final = b": ping\n\n"

EVENTS_PER_WRITE_MAX: Final = 256
"""A backlog is written in pieces, so that flow control acts between them."""

WRITES_PER_TURN_MAX: Final = 16
"""Writes without a pause before the event loop gets its turn: neither a follower with a backlog nor
a connection that takes everything suspends by itself."""

LAST_WORD_S: Final = 1.0
"""How long a stream that the server itself cuts may take to say so."""

_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)

_log = structlog.stdlib.get_logger("http")


EventT = TypeVar("EventT")
EventT_contra = TypeVar("EventT_contra", contravariant=True)


class Followed(Protocol[EventT]):
    """What is written: its next events, and whether that was all. ``subject`` is for the log."""

    @property
    def subject(self) -> str: ...
    @property
    def ended(self) -> bool: ...

    async def take(self, timeout_s: float) -> Sequence[EventT]:
        """What has happened since the last call; empty on time-out."""
        ...

    def seen(self, events: Sequence[EventT]) -> Sequence[EventT]:
        """Notes whether it has ended with these events, and hands them on."""
        ...


class Dialect(Protocol[EventT_contra]):
    """How a surface writes events down. Every result is zero or more whole frames."""

    def opening(self) -> bytes:
        """What comes first."""
        ...

    def render(self, events: Sequence[EventT_contra]) -> bytes:
        """These events; with the last one also all that closes the stream."""
        ...

    def failure(self, error: JobServerError) -> bytes:
        """An error that is no event of the subject's, and all that closes the stream."""
        ...


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a stream may be silent in either direction."""

    keepalive_interval_s: float
    write_timeout_s: float


class StreamedAnswer(Response[bytes]):
    """An answer that is made while it is sent.

    ``serve`` may still raise, and be answered with the error, until it sends its first message.
    """

    def __init__(self, serve: ASGIApp) -> None:
        super().__init__(b"")
        self._serve = serve

    @override
    def to_asgi_response(self, *_args: Any, **_kwargs: Any) -> Any:
        """The application that serves it; Litestar asks no more of a response than to be one."""
        return self._serve


class EventStream(Generic[EventT]):
    """Writes events until there are no more."""

    def __init__(
        self,
        *,
        followed: Followed[EventT],
        dialect: Dialect[EventT],
        limits: StreamLimits,
        send: Send,
        connection: Connection,
    ) -> None:
        self._followed = followed
        self._dialect = dialect
        self._limits = limits
        self._send = send
        self._connection = connection
        self._stall = StallTimer(limits.write_timeout_s, connection.interrupt)

    async def write(self, first: Sequence[EventT], headers: Mapping[str, str]) -> None:
        """Sends the status, then everything from ``first`` on, and completes the response.

        Raises:
            ClientGone: through the connection's context, when there is nobody to write to.
        """
        extra = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        await self._send(
            {"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *extra]}
        )
        with self._stall:
            try:
                await self._write_events(first)
            except JobServerError as error:
                await self._write(self._dialect.failure(error), last=True)
            except Exception:  # noqa: BLE001 - logged, and told in the stream
                _log.exception("stream_failed", subject=self._followed.subject)
                await self._write(self._dialect.failure(InternalError()), last=True)
            except asyncio.CancelledError:
                if not self._connection.gone:
                    await self._last_word()
                raise

    async def _write_events(self, first: Sequence[EventT]) -> None:
        await self._write(self._dialect.opening())
        events = self._followed.seen(first)
        while True:
            await self._write_batch(events)
            if self._followed.ended:
                return
            events = await self._followed.take(self._limits.keepalive_interval_s)
            if not events:
                await self._write(PING)

    async def _write_batch(self, events: Sequence[EventT]) -> None:
        for start in range(0, len(events), EVENTS_PER_WRITE_MAX):
            stop = start + EVENTS_PER_WRITE_MAX
            frames = self._dialect.render(events[start:stop])
            await self._write(frames, last=self._followed.ended and stop >= len(events))

    async def _write(self, frames: bytes, *, last: bool = False) -> None:
        if not frames and not last:
            return
        self._stall.writing = True
        await self._send({"type": "http.response.body", "body": frames, "more_body": not last})
        self._stall.writing = False
        self._stall.writes += 1
        if self._stall.writes % WRITES_PER_TURN_MAX == 0:
            await asyncio.sleep(0)

    async def _last_word(self) -> None:
        # Cut by the server: its time for stopping has run out. A silent end would pass for success.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_S):
                await self._write(self._dialect.failure(StreamInterrupted()), last=True)
