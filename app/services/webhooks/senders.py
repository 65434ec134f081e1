"""All senders: one for each endpoint that is enabled, beside each other."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Final

import structlog

from app.domain.addresses import networks
from app.domain.errors import StreamInterrupted
from app.domain.feed import ConsumerState
from app.domain.report_errors import ConsumerNotFound, ConsumerParked
from app.domain.webhooks import Endpoint, EndpointState
from app.outbound.resolving import Resolver
from app.services.clock import Clock
from app.services.report_feed import ReportFeed
from app.services.tasks import Tasks
from app.services.webhooks.addressing import Permits
from app.services.webhooks.bodies import Bodies
from app.services.webhooks.sender import Counts, Outfit, Posts, Sender, Superseded
from app.settings import WebhookSettings
from app.storage.consumers import load_consumer
from app.storage.database import Database
from app.storage.webhooks import disable_endpoint, load_endpoint, load_endpoints

if TYPE_CHECKING:
    from app.outbound.posting import Posting

AGAIN_S: Final = 1.0
"""Before an endpoint is looked at anew, after somebody else had moved it."""

FAILED_S: Final = 60.0
"""The same, after a fault of our own."""

NewPosts = Callable[[Permits, float], Awaitable[Posts]]
"""What sends to one receiver, to addresses that are permitted, and waits so long for an answer."""

_log = structlog.get_logger("webhooks")


async def http_posts(permits: Permits, timeout_s: float) -> Posts:
    """Over HTTP. The first time its client is loaded, which takes a while: in a thread."""
    return (await asyncio.to_thread(_posting)).poster(permits, timeout_s)


@cache
def _posting() -> "Posting":
    from app.outbound.posting import Posting

    return Posting()


class Senders:
    """Begins and ends senders. Until there is an endpoint nothing of an HTTP client is loaded.

    Attributes:
        counts: what was sent since the start.
    """

    def __init__(
        self,
        database: Database,
        feed: ReportFeed,
        tasks: Tasks,
        clock: Clock,
        draw: Callable[[], float],
        settings: WebhookSettings,
        new_posts: NewPosts = http_posts,
    ) -> None:
        self._database = database
        self._tasks = tasks
        self._new_posts = new_posts
        self._allowed = networks(settings.allowed_networks)
        self._timeout_s = settings.timeout_s
        self._running: dict[str, asyncio.Task[None]] = {}
        self._senders: dict[str, Sender] = {}
        self.counts = Counts()
        self._outfit = Outfit(
            database, feed, Bodies(database), clock, draw, self.counts, settings.give_up_s
        )

    @property
    def sending(self) -> int:
        """Endpoints that are sent to."""
        return len(self._senders)

    @property
    def waiting(self) -> int:
        """Events that were tried, and will be again."""
        return sum(sender.waiting for sender in self._senders.values())

    async def start(self) -> None:
        """Send to whoever is enabled."""
        for endpoint in await load_endpoints(self._database.readers):
            if endpoint.state is EndpointState.ENABLED:
                self.begin(endpoint.id)

    async def stop(self) -> None:
        """Send nothing more. What is on its way may arrive, and will be sent again."""
        await asyncio.gather(*map(self.end, list(self._running)))

    def begin(self, endpoint: str) -> None:
        """Send to this one, if it is enabled."""
        if endpoint not in self._running:
            self._running[endpoint] = self._tasks.spawn(self._keep(endpoint), f"to {endpoint}")

    async def end(self, endpoint: str) -> None:
        """Send nothing more to this one."""
        task = self._running.pop(endpoint, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def permits(self) -> Permits:
        """A judge of one receiver's addresses."""
        return Permits(Resolver().addresses, self._allowed)

    async def posts(self) -> Posts:
        """What sends to one receiver."""
        return await self._new_posts(self.permits(), self._timeout_s)

    async def _keep(self, endpoint: str) -> None:
        """Send until there is a reason not to."""
        try:
            while (sender := await self._sender(endpoint)) is not None:
                self._senders[endpoint], pause_s = sender, AGAIN_S
                try:
                    await sender.run()
                except StreamInterrupted:
                    return
                except (Superseded, ConsumerParked, ConsumerNotFound) as error:
                    _log.info("webhook_looked_at", endpoint=endpoint, reason=type(error).__name__)
                except Exception:  # noqa: BLE001 - the top of a sender: whatever it was, it is begun anew
                    _log.exception("sender_failed", endpoint=endpoint)
                    pause_s = FAILED_S
                del self._senders[endpoint]
                await asyncio.sleep(pause_s)
        finally:
            self._senders.pop(endpoint, None)
            if self._running.get(endpoint) is asyncio.current_task():
                del self._running[endpoint]

    async def _sender(self, name: str) -> Sender | None:
        """As things stand; None when nothing is to be sent."""
        endpoint = await load_endpoint(self._database.readers, name)
        if endpoint is None or endpoint.state is not EndpointState.ENABLED:
            return None
        consumer = await load_consumer(self._database.readers, endpoint.consumer)
        if consumer is not None and consumer.state is ConsumerState.LIVE:
            return Sender(endpoint, consumer, await self.posts(), self._outfit)
        why = "there is none" if consumer is None else consumer.parked_reason
        await self._disable(endpoint, f"its place in the feed is not kept: {why}")
        return None

    async def _disable(self, endpoint: Endpoint, reason: str) -> None:
        now = self._outfit.clock.now()
        await self._database.writer.submit(disable_endpoint(endpoint.id, reason, now))
        _log.warning("webhook_disabled", endpoint=endpoint.id, reason=reason)
