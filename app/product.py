"""The services, made once and wired: what runs behind the HTTP door.

``main`` puts a door in front of it; tests and simulations use it as it is.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from app.catalogue.entries import Catalogue
from app.dispatch.router import Router
from app.services.boot import reconcile
from app.services.cancellation import Cancellation
from app.services.clock import Clock
from app.services.endings import Endings
from app.services.fleet import Fleet, Worker
from app.services.following import Following
from app.services.gauges import gauges
from app.services.ingestion import Ingestion
from app.services.launching import Launcher
from app.services.ledger import Ledger
from app.services.liveness import Liveness
from app.services.models import Models
from app.services.overview import Overview
from app.services.reception import Reception
from app.services.relay import Relay
from app.services.rescue import Rescue
from app.services.shutdown import Shutdown
from app.services.submission import Submission
from app.services.workers import Workers
from app.settings import Settings
from app.storage.database import Database
from shared.ids import IdMint


@dataclass(slots=True)
class Product:
    """Everything that is alive between start and stop."""

    database: Database
    router: Router
    reception: Reception
    ledger: Ledger
    fleet: Fleet
    relay: Relay
    workers: Workers
    submission: Submission
    following: Following
    cancellation: Cancellation
    overview: Overview
    shutdown: Shutdown
    liveness: Liveness
    settings: Settings

    async def start(self) -> None:
        """Open the socket and begin to listen to workers."""
        self.router.open(self.reception.messages, self.reception.unreachable)
        self.liveness.start()

    async def stop(self) -> None:
        """End what is open, stop the workers, close the store."""
        grace_s = 0.0 if self.shutdown.forced else self.settings.worker.stop_grace_s
        await self.workers.stop(grace_s)
        self.liveness.stop()
        self.router.close()
        await self.database.close()


async def assemble(
    settings: Settings, database: Database, socket_path: Path, clock: Clock, version: str
) -> Product:
    """Make every service over an open store, which is first reconciled with the past."""
    epoch, store = database.parent_epoch, database.store_id
    past = await reconcile(database, clock)
    mint = IdMint(lambda: time.time_ns() // 1_000_000, os.urandom, past.last_id_body)
    ledger, fleet = Ledger(), Fleet()
    writer = database.writer
    relay = Relay(fleet, writer, clock, epoch, store, past.last_command + 1)
    endings = Endings(ledger, writer, clock)
    rescue = Rescue(fleet, endings, writer, clock)
    launcher = Launcher(settings, f"ipc://{socket_path}", store, epoch)
    router = Router(socket_path, lambda: writer.depth > settings.queue.writer_max)
    fleet.transport = router
    workers = Workers(fleet, relay, rescue, endings, writer, clock, mint, launcher, router.drain)
    ingestion = Ingestion(fleet, relay, endings, writer, clock, epoch, workers.replace)
    cancellation = Cancellation(ledger, fleet, relay, endings, writer, clock, epoch)

    def greeted(worker: Worker) -> None:
        relay.resend(worker)
        cancellation.resend(worker)

    reception = Reception(
        fleet, router, ingestion, clock, epoch, workers.became_ready, workers.replace, greeted
    )
    models = Models(Catalogue.of(settings), clock)
    submission = Submission(
        models, ledger, fleet, relay, workers, endings, cancellation, writer, clock, mint, settings
    )
    overview = Overview(
        models,
        settings.models.default,
        lambda: submission.closed,
        workers.reason,
        gauges(
            ledger,
            fleet,
            relay,
            workers,
            endings,
            ingestion,
            submission,
            writer,
            reception,
            router,
        ),
        version,
    )
    return Product(
        database=database,
        router=router,
        reception=reception,
        ledger=ledger,
        fleet=fleet,
        relay=relay,
        workers=workers,
        submission=submission,
        following=Following(fleet, clock, settings.server.header_wait_s),
        cancellation=cancellation,
        overview=overview,
        shutdown=Shutdown(submission, ledger, cancellation, settings.server.shutdown_grace_s),
        liveness=Liveness(fleet, workers, clock, settings.worker),
        settings=settings,
    )
