"""What the doors of reports, consumers and receipts need from the services."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.feed import Consumer, Cursor, FeedState, Page, Report, Selection, Start


class ReportFollower(Protocol):
    """Reports as they come, from behind a place on."""

    @property
    def name(self) -> str | None:
        """The consumer's, if it is one's."""
        ...

    async def take(self, timeout_s: float) -> Sequence[Report]:
        """The next ones, in order; empty on time-out.

        Raises:
            StreamInterrupted: the server stops.
            JobServerError: this reader may not go on.
        """
        ...

    def close(self) -> None:
        """Follow no longer. Synchronous and idempotent."""
        ...


class Feed(Protocol):
    """Reading without a place that the server keeps."""

    @property
    def epoch(self) -> str:
        """Names the feed's numbering."""
        ...

    async def state(self) -> FeedState:
        """How far the feed reaches."""
        ...

    async def check(self, cursor: Cursor, /) -> int:
        """The place that a reader names.

        Raises:
            FeedEpochChanged, CursorAhead: it is none of this feed.
        """
        ...

    async def page(self, selection: Selection, after: int, limit: int, /) -> Page:
        """The next reports that this reader is shown."""
        ...

    def follow(self, selection: Selection, after: int, /) -> ReportFollower:
        """The same, as they come."""
        ...


class Consumers(Protocol):
    """Readers with a place that the server keeps. A tenant of None is the operator."""

    async def create(
        self, name: str, selection: Selection, start: Start, /
    ) -> tuple[Consumer, bool]:
        """The consumer, and whether it is new.

        Raises:
            ConsumerExists: another one has this name.
        """
        ...

    async def list(self, tenant: str | None, /) -> Sequence[Consumer]:
        """All of them, by name."""
        ...

    async def get(self, name: str, tenant: str | None, /) -> Consumer:
        """This one.

        Raises:
            ConsumerNotFound: there is none.
        """
        ...

    async def delete(self, name: str, tenant: str | None, /) -> None:
        """Its place is kept no longer.

        Raises:
            ConsumerNotFound: there is none.
        """
        ...

    async def page(self, name: str, tenant: str | None, limit: int, /) -> tuple[Consumer, Page]:
        """What it has not acknowledged.

        Raises:
            ConsumerNotFound: there is none.
            ConsumerParked: its place is not kept.
        """
        ...

    async def follow(
        self, name: str, tenant: str | None, seen: Cursor | None, /
    ) -> tuple[Consumer, ReportFollower]:
        """The same, as it comes.

        Raises:
            ConsumerNotFound: there is none.
            ConsumerParked: its place is not kept.
            FeedEpochChanged, CursorAhead: ``seen`` is no place of this feed.
        """
        ...

    async def ack(
        self, name: str, tenant: str | None, through: Cursor, expected: Cursor | None, /
    ) -> Consumer:
        """Everything up to ``through`` is done.

        Raises:
            ConsumerNotFound: there is none.
            ConsumerParked: its place is not kept.
            FeedEpochChanged, CursorAhead: a cursor is no place of this feed.
            CursorMoved: it is not where ``expected`` says.
        """
        ...

    def heard(self, consumer: Consumer, passed: int, /) -> None:
        """It is still there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPorts:
    """The services behind these doors."""

    feed: Feed
    consumers: Consumers
