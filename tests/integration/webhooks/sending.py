"""The services of webhooks over an open store, and time that a test moves."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.feed import Selection
from app.domain.webhooks import EVENT_TYPES, Delivery
from app.services.webhooks.deliveries import Deliveries
from app.services.webhooks.endpoints import Endpoints, EndpointView
from app.services.webhooks.senders import Senders
from app.settings import WebhookSettings
from shared.ids import IdMint
from tests.integration.reports.reading import Reading, reading

HOUR_S = 3_600.0


@dataclass(kw_only=True)
class Sending(Reading):
    """Reading, and what is sent."""

    senders: Senders
    endpoints: Endpoints
    deliveries: Deliveries

    async def endpoint(self, url: str, **fields: Any) -> EndpointView:
        """A new endpoint for everything."""
        types = fields.pop("event_types", EVENT_TYPES)
        start = fields.pop("start", "latest")
        return await self.endpoints.create("hook", url, types, Selection(**fields), start)

    async def told(self, endpoint: str) -> list[Delivery]:
        """All its deliveries, in the order of the feed."""
        return (await self.deliveries.page(endpoint, None, None, None, 1000))[::-1]


_EVENTS = IdMint(lambda: 1_700_000_000_000, lambda count: bytes(count))


def services(store: Reading, **settings: Any) -> Sending:
    """The services of webhooks over what reads the feed."""
    values = {"allowed_networks": ["loopback"], "timeout_s": 0.5, **settings}
    senders = Senders(
        store.database, store.feed, store.tasks, store.clock, lambda: 0.5, WebhookSettings(**values)
    )
    endpoints = Endpoints(store.database, senders, store.clock, _EVENTS.endpoint)
    deliveries = Deliveries(store.database, endpoints, store.clock)
    known = {name: getattr(store, name) for name in ("database", "clock", "tasks", "feed")}
    return Sending(
        **known,
        consumers=store.consumers,
        jobs=store.jobs,
        senders=senders,
        endpoints=endpoints,
        deliveries=deliveries,
    )


@asynccontextmanager
async def sending(data_dir: Path, **settings: Any) -> AsyncGenerator[Sending]:
    """The services over the store in this directory, sending."""
    async with reading(data_dir) as store:
        hooks = services(store, **settings)
        await hooks.senders.start()
        yield hooks
        await hooks.senders.stop()
