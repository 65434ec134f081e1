"""Reports and whoever reads them: the services of the feed, made and run together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from app.services.clock import Clock
from app.services.consumers import Consumers
from app.services.gauges import counter, gauge
from app.services.overview import Gauge
from app.services.parking import Parking
from app.services.report_feed import ReportFeed
from app.services.tasks import Tasks
from app.services.webhooks.deliveries import Deliveries
from app.services.webhooks.endpoints import Endpoints
from app.services.webhooks.senders import Senders
from app.settings import Settings
from app.storage.database import Database


@dataclass(frozen=True, slots=True)
class Reporting:
    """The feed, its consumers, who is sent it, and what keeps all of that within bounds."""

    feed: ReportFeed
    consumers: Consumers
    parking: Parking
    senders: Senders
    endpoints: Endpoints
    deliveries: Deliveries

    @classmethod
    def over(
        cls,
        database: Database,
        tasks: Tasks,
        clock: Clock,
        settings: Settings,
        mint: Callable[[], str],
        draw: Callable[[], float],
    ) -> Self:
        """Over an open store. ``mint`` makes ids of endpoints, ``draw`` is uniform in [0, 1)."""
        feed = ReportFeed(database, tasks)
        consumers = Consumers(database, feed, clock)
        parking = Parking(database, feed, consumers, tasks, clock, settings.retention)
        senders = Senders(database, feed, tasks, clock, draw, settings.webhooks)
        endpoints = Endpoints(database, senders, clock, mint)
        deliveries = Deliveries(database, endpoints, clock)
        return cls(feed, consumers, parking, senders, endpoints, deliveries)

    async def start(self) -> None:
        """Look after the consumers, and send to the endpoints that there are."""
        self.parking.start()
        await self.senders.start()

    async def stop(self) -> None:
        """Neither any more."""
        self.parking.stop()
        await self.senders.stop()

    def gauges(self) -> list[Gauge]:
        """What can be measured of them."""
        return [
            gauge("report_readers", "Readers of the stream of reports.", lambda: self.feed.readers),
            counter(
                "consumers_parked",
                "Consumers of reports that were parked.",
                lambda: self.parking.parked,
            ),
            *webhook_gauges(self.senders),
        ]


def webhook_gauges(senders: Senders) -> list[Gauge]:
    """What can be measured of webhooks."""
    counts = senders.counts
    return [
        gauge("webhook_endpoints", "Endpoints that are sent to.", lambda: senders.sending),
        gauge(
            "webhooks_waiting",
            "Deliveries that were tried and wait for another try.",
            lambda: senders.waiting,
        ),
        gauge(
            "webhook_delay_seconds",
            "From a job's end to its delivery, of the latest one.",
            lambda: counts.delay_s,
        ),
        counter("webhooks_delivered", "Deliveries that arrived.", lambda: counts.delivered),
        counter("webhook_tries_failed", "Tries that failed.", lambda: counts.failed),
        counter("webhooks_parked", "Deliveries that were given up.", lambda: counts.parked),
    ]
