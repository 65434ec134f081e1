"""The events behind reports, written down once before anybody is sent them."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from app.domain.feed import Report
from app.domain.webhooks import Event, event_id, event_of
from app.storage.database import Database
from app.storage.deliveries import insert_events, load_events

KEPT: Final = 256
"""Events kept in memory: all endpoints want the same ones at about the same time."""


class Bodies:
    """Hands out events as they are stored. One that is damaged on disk is None: it is not made
    again, since what it was is not known."""

    def __init__(self, database: Database) -> None:
        self._readers = database.readers
        self._writer = database.writer
        self._kept: OrderedDict[str, Event | None] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    async def of(self, reports: Sequence[Report]) -> list[Event | None]:
        """The events of these reports, written down by now."""
        by_id = {event_id(report): report for report in reports}
        async with self._one_at_a_time:
            found = await self._load(by_id)
            fresh = [event_of(report) for name, report in by_id.items() if name not in found]
            if fresh:
                await self._writer.submit(insert_events(fresh))
                found |= {event.id: event for event in fresh}
            self._keep(found)
        return [found[name] for name in by_id]

    async def stored(self, name: str) -> Event | None:
        """An event that was written down before."""
        async with self._one_at_a_time:
            found = await self._load((name,))
            self._keep(found)
        return found.get(name)

    async def _load(self, names: Iterable[str]) -> dict[str, Event | None]:
        wanted = list(names)
        found = {name: self._kept[name] for name in wanted if name in self._kept}
        missing = [name for name in wanted if name not in found]
        return found | await load_events(self._readers, missing) if missing else found

    def _keep(self, found: dict[str, Event | None]) -> None:
        self._kept |= found
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
