"""The services of webhooks over an open store, and time that a test moves."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.feed import Selection
from app.domain.webhooks import EVENT_TYPES, Delivery
from app.services.clock import SystemClock
from app.services.webhooks.deliveries import Deliveries
from app.services.webhooks.endpoints import Endpoints, EndpointView
from app.services.webhooks.senders import Senders
from app.settings import WebhookSettings
from shared.ids import IdMint
from tests.integration.reports.reading import Reading, reading

PATIENCE_S = 10.0


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

    async def stands(self, endpoint: str, *states: str) -> list[Delivery]:
        """The same, once their states are these."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                told = await self.told(endpoint)
                if [one.state for one in told] == list(states):
                    return told
                await self.settled()


_IDS = IdMint(lambda: 1_700_000_000_000, bytes)


def services(store: Reading, **settings: Any) -> Sending:
    """The services of webhooks over what reads the feed. Their clock is the machine's: what they
    wait for is short here."""
    clock = SystemClock()
    values: dict[str, Any] = {"allowed_networks": ["loopback"], "timeout_s": 5.0, **settings}
    senders = Senders(
        store.database, store.feed, store.tasks, clock, lambda: 0.5, WebhookSettings(**values)
    )
    endpoints = Endpoints(store.database, senders, clock, _IDS.endpoint)
    deliveries = Deliveries(store.database, endpoints, clock)
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
