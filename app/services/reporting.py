"""Reports and whoever reads them: the services of the feed, made and run together."""

from dataclasses import dataclass
from typing import Self

from app.services.clock import Clock
from app.services.consumers import Consumers
from app.services.gauges import counter, gauge
from app.services.overview import Gauge
from app.services.parking import Parking
from app.services.report_feed import ReportFeed
from app.services.tasks import Tasks
from app.settings import RetentionSettings
from app.storage.database import Database


@dataclass(frozen=True, slots=True)
class Reporting:
    """The feed, its consumers, and what keeps both within bounds."""

    feed: ReportFeed
    consumers: Consumers
    parking: Parking

    @classmethod
    def over(
        cls, database: Database, tasks: Tasks, clock: Clock, settings: RetentionSettings
    ) -> Self:
        """Over an open store."""
        feed = ReportFeed(database, tasks)
        consumers = Consumers(database, feed, clock)
        parking = Parking(database, feed, consumers, tasks, clock, settings)
        return cls(feed, consumers, parking)

    def gauges(self) -> list[Gauge]:
        """What can be measured of them."""
        return [
            gauge("report_readers", "Readers of the stream of reports.", lambda: self.feed.readers),
            counter(
                "consumers_parked",
                "Consumers of reports that were parked.",
                lambda: self.parking.parked,
            ),
        ]
