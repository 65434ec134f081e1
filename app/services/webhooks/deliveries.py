"""What was sent to an endpoint, and sending it again."""

from app.domain.webhook_errors import EventNotFound
from app.domain.webhooks import ASIDE_MAX, Delivery, report_of
from app.services.clock import Clock
from app.services.webhooks.endpoints import Endpoints
from app.storage.database import Database
from app.storage.deliveries import (
    load_deliveries,
    load_place,
    replay_from,
    replay_one,
    replay_parked,
)
from app.storage.operations import Operation


class Deliveries:
    """Tells of deliveries and repeats them. A tenant of None is the operator."""

    def __init__(self, database: Database, endpoints: Endpoints, clock: Clock) -> None:
        self._readers = database.readers
        self._endpoints = endpoints
        self._clock = clock

    async def page(
        self,
        name: str,
        tenant: str | None,
        state: str | None,
        after: str | None,
        limit: int,
    ) -> list[Delivery]:
        """What was sent, the latest first; behind the event ``after``, if there is one.

        Raises:
            EndpointNotFound: this tenant has none that is called so.
            EventNotFound: ``after`` is none that is kept.
        """
        await self._endpoints.get(name, tenant)
        before = None if after is None else await self._place(after)
        return await load_deliveries(self._readers, name, state, before, limit)

    async def replay_event(self, name: str, tenant: str | None, event: str) -> None:
        """Send this event again, whatever became of it.

        Raises:
            EndpointNotFound: this tenant has none that is called so.
            EventNotFound: it was not sent to this endpoint yet, or is not kept.
        """
        await self._do(name, tenant, replay_one(name, event, self._clock.now()))

    async def replay_parked(self, name: str, tenant: str | None) -> int:
        """Send what was given up, as much as may wait at a time; how many that is.

        Raises:
            EndpointNotFound: this tenant has none that is called so.
        """
        view = await self._endpoints.get(name, tenant)
        count = min(view.parked, max(0, ASIDE_MAX - view.waiting))
        await self._do(name, tenant, replay_parked(name, self._clock.now(), count))
        return count

    async def replay_from(self, name: str, tenant: str | None, event: str) -> None:
        """Send all again from this event on, as the feed has it.

        Raises:
            EndpointNotFound: this tenant has none that is called so.
            EventNotFound: it is not kept, or lies ahead.
        """
        await self._do(name, tenant, replay_from(name, await self._place(event)))

    async def _do(self, name: str, tenant: str | None, operation: Operation) -> None:
        if not await self._endpoints.change(name, tenant, operation):
            raise EventNotFound

    async def _place(self, event: str) -> int:
        report = report_of(event)
        place = None if report is None else await load_place(self._readers, event, *report)
        if place is None:
            raise EventNotFound
        return place
