"""The feed of reports as it is read: page by page from the store, and pushed as it grows.

After each commit that added to the feed the writer says so; what is new is then read once, for all
who follow. They are cursors into the latest ``TAIL`` reports; one that is further behind reads
pages. Nobody polls.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from app.domain.errors import JobServerError, StreamInterrupted
from app.domain.feed import Cursor, FeedState, Page, Report, Selection
from app.domain.report_errors import CursorAhead, FeedEpochChanged
from app.services.tasks import Tasks
from app.storage.database import Database
from app.storage.feed_reading import load_feed_page
from app.storage.report_retention import load_feed

TAIL: Final = 512
"""Latest reports that are kept in memory while somebody follows."""

SCAN: Final = 200
"""Reports read at once; of those that a reader is not shown nothing is told."""

SCANS_MAX: Final = 25
"""Such reads for one page: who asks for what is rare is answered in between."""


class ReportFeed:
    """Hands out pages and followers.

    Attributes:
        epoch: names the numbering.
        publications: how many commits have added to the feed since the start.
    """

    def __init__(self, database: Database, tasks: Tasks) -> None:
        self.epoch = database.feed_epoch
        self._readers = database.readers
        self._tasks = tasks
        self._followers: set[ReportFollower] = set()
        self._tail: deque[Report] = deque(maxlen=TAIL)
        self._tail_after = self._tail_last = -1
        self.publications = 0
        self._filling = False
        self._more = False
        self._stopped = False
        database.writer.on_published.append(self._published)

    @property
    def readers(self) -> int:
        """How many follow."""
        return len(self._followers)

    def stop(self) -> None:
        """The server is stopping: everybody who follows goes on elsewhere."""
        self._stopped = True
        for follower in list(self._followers):
            follower.interrupt(StreamInterrupted())

    async def state(self) -> FeedState:
        """How far the feed reaches."""
        return await load_feed(self._readers)

    async def check(self, cursor: Cursor) -> int:
        """The place that a reader names.

        Raises:
            FeedEpochChanged: it is of another numbering.
            CursorAhead: no such place has been committed.
        """
        if cursor.epoch != self.epoch:
            raise FeedEpochChanged(f"The feed's epoch is '{self.epoch}' now.")
        last = (await self.state()).last
        if cursor.seq > last:
            raise CursorAhead(f"The feed ends at {last}.")
        return cursor.seq

    async def page(self, selection: Selection, after: int, limit: int) -> Page:
        """The next reports that this reader is shown, from behind a place on. It may hold fewer
        than there are, or none, when it took ``SCANS_MAX`` reads to find them."""
        found: list[Report] = []
        for _ in range(SCANS_MAX):
            rows = await load_feed_page(self._readers, after, SCAN)
            for row in rows:
                if row.shown_to(selection):
                    if len(found) == limit:
                        return Page(reports=tuple(found), next=after, end=False)
                    found.append(row)
                after = row.seq
            if len(rows) < SCAN:
                return Page(reports=tuple(found), next=after, end=True)
        return Page(reports=tuple(found), next=after, end=False)

    def follow(self, selection: Selection, after: int, name: str | None = None) -> "ReportFollower":
        """What comes behind a place, as it comes. ``name`` is the consumer's."""
        follower = ReportFollower(self, selection, after, name, self._followers.discard)
        self._followers.add(follower)
        if self._stopped:
            follower.interrupt(StreamInterrupted())
        return follower

    def follows(self, name: str) -> bool:
        """Whether this consumer is following."""
        return any(follower.name == name for follower in self._followers)

    def end(self, name: str, error: JobServerError) -> None:
        """This consumer follows no longer, for this reason."""
        for follower in list(self._followers):
            if follower.name == name:
                follower.interrupt(error)

    def tail(self, after: int) -> list[Report] | None:
        """What is known to stand behind a place; None when that must be read from the store."""
        if self._tail_last < 0 or not self._tail_after <= after <= self._tail_last:
            return None
        return [report for report in self._tail if report.seq > after]

    def caught_up(self, after: int, publications: int) -> None:
        """The store held nothing behind this place when so many had been published: the tail goes
        on from there, unless it has come further or there is more by now."""
        if after > self._tail_last and publications == self.publications:
            self._begin_tail(after)

    def _begin_tail(self, after: int) -> None:
        self._tail.clear()
        self._tail_after = self._tail_last = after

    def _published(self) -> None:
        self.publications += 1
        self._more = True
        if not self._followers:
            self._begin_tail(-1)
        elif not self._filling:
            self._filling = True
            self._tasks.spawn(self._fill(), "report feed")

    async def _fill(self) -> None:
        try:
            while self._more:
                self._more = False
                await self._read_on()
                for follower in list(self._followers):
                    follower.wake()
        finally:
            self._filling = False

    async def _read_on(self) -> None:
        if self._tail_last < 0:
            return  # nobody has caught up yet: whoever does finds it in the store
        while rows := await load_feed_page(self._readers, self._tail_last, SCAN):
            if rows[0].seq <= self._tail_last:
                return  # somebody has begun anew further on
            for row in rows:
                if len(self._tail) == TAIL:
                    self._tail_after = self._tail[0].seq
                self._tail.append(row)
            self._tail_last = rows[-1].seq


class ReportFollower:
    """One reader of the feed. Not shared between tasks. ``cursor`` is where it stands."""

    def __init__(
        self,
        feed: ReportFeed,
        selection: Selection,
        after: int,
        name: str | None,
        on_close: Callable[["ReportFollower"], None],
    ) -> None:
        self.cursor = after
        self.name = name
        self._feed = feed
        self._selection = selection
        self._on_close = on_close
        self._changed = asyncio.Event()
        self._error: JobServerError | None = None

    async def take(self, timeout_s: float, passing_s: float | None = None) -> list[Report]:
        """The next reports; empty when none came in time, or, if it is given, ``passing_s`` after
        ``cursor`` moved past reports that this reader is not shown.

        Raises:
            StreamInterrupted: the server is stopping.
            JobServerError: this reader may not go on, and why.
        """
        loop, stood = asyncio.get_running_loop(), self.cursor
        until = loop.time() + timeout_s
        while True:
            self._changed.clear()
            if self._error is not None:
                raise self._error
            if reports := await self._available():
                return reports
            if passing_s is not None and self.cursor > stood:
                until, passing_s = min(until, loop.time() + passing_s), None
            if not await self._wait(until):
                return []

    def wake(self) -> None:
        """There may be something to take."""
        self._changed.set()

    def interrupt(self, error: JobServerError) -> None:
        """End it with this, as soon as it is asked."""
        self._error = error
        self._changed.set()

    def close(self) -> None:
        """Follow no longer; calling it again does nothing."""
        self._on_close(self)

    async def _available(self) -> list[Report]:
        rows = self._feed.tail(self.cursor)
        if rows is None:
            return await self._stored()
        if rows:
            self.cursor = rows[-1].seq
        return [row for row in rows if row.shown_to(self._selection)]

    async def _stored(self) -> list[Report]:
        while True:
            publications = self._feed.publications
            page = await self._feed.page(self._selection, self.cursor, SCAN)
            self.cursor = page.next
            if page.end:
                self._feed.caught_up(page.next, publications)
            if page.reports or page.end:
                return list(page.reports)

    async def _wait(self, until: float) -> bool:
        try:
            async with asyncio.timeout_at(until):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True
