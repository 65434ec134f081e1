"""Everything that is alive between start and stop, and the order of both."""

from dataclasses import dataclass

from app.dispatch.router import Router
from app.services.accounting import Accounting
from app.services.administration import Administration
from app.services.boot import Boot
from app.services.cancellation import Cancellation
from app.services.compaction import Compaction
from app.services.draining import Draining
from app.services.fleet import Fleet
from app.services.following import Following
from app.services.jobs import Jobs
from app.services.ledger import Ledger
from app.services.liveness import Liveness
from app.services.overview import Overview
from app.services.reception import Reception
from app.services.reporting import Reporting
from app.services.retention import Retention
from app.services.schedules import Schedules
from app.services.shutdown import Shutdown
from app.services.submission import Submission
from app.services.tasks import Tasks
from app.services.timetable import Timetable
from app.services.workers import Workers
from app.settings import Settings
from app.storage.database import Database
from app.storage.drains import load_latest_drain


@dataclass(slots=True)
class Product:
    """Everything that is alive between start and stop."""

    settings: Settings
    database: Database
    tasks: Tasks
    router: Router
    reception: Reception
    ledger: Ledger
    fleet: Fleet
    boot: Boot
    submission: Submission
    following: Following
    cancellation: Cancellation
    jobs: Jobs
    draining: Draining
    administration: Administration
    overview: Overview
    shutdown: Shutdown
    liveness: Liveness
    retention: Retention
    compaction: Compaction
    reporting: Reporting
    accounting: Accounting
    schedules: Schedules
    timetable: Timetable
    workers: Workers

    async def start(self) -> None:
        """Put the past in order, open the socket, begin to listen to workers."""
        await self.boot.run()
        self.draining.remember(await load_latest_drain(self.database.readers))
        self.router.open(self.reception.messages, self.reception.unreachable)
        self.liveness.start()
        self.boot.go_on()
        self.retention.start()
        self.compaction.start()
        await self.timetable.start()
        await self.reporting.start()

    async def settle(self) -> None:
        """Admit nothing more, settle what is in flight, end every stream."""
        self.timetable.stop()
        await self.shutdown.settle()
        self.following.stop()
        self.reporting.feed.stop()

    async def stop(self) -> None:
        """Stop the workers, close the socket and the store."""
        grace_s = 0.0 if self.shutdown.forced else self.settings.worker.stop_grace_s
        await self.workers.stop(grace_s)
        self.retention.stop()
        self.compaction.stop()
        await self.reporting.stop()
        self.liveness.stop()
        await self.tasks.close()
        self.router.close()
        await self.database.close()
