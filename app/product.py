"""The services, made once and wired: what runs behind the HTTP door.

``main`` puts a door in front of it; tests and simulations use it as it is.
"""

from functools import partial
from pathlib import Path

from app.catalogue.entries import Catalogue
from app.domain.job import StopReason
from app.domain.poison import Limits
from app.lifetime import Product
from app.services.accounting import Accounting
from app.services.administration import Administration
from app.services.adoption import Adoption
from app.services.attempts import Attempts
from app.services.boot import Boot, Past, past_of
from app.services.cancellation import Cancellation
from app.services.clock import Clock, unix_ms
from app.services.compaction import Compaction
from app.services.deadlines import Deadlines
from app.services.dependents import Dependents
from app.services.draining import Draining
from app.services.endings import Endings
from app.services.fleet import Fleet, Worker
from app.services.following import Following
from app.services.gauges import gauges
from app.services.ingestion import Ingestion
from app.services.jobs import Jobs
from app.services.launching import Launcher
from app.services.ledger import Ledger, LiveJob
from app.services.liveness import Liveness
from app.services.models import Models
from app.services.outside import Outside
from app.services.overview import Overview
from app.services.precedence import Precedence
from app.services.preemption import Preemption
from app.services.queues import Queues
from app.services.recall import Recall
from app.services.reception import Reception
from app.services.relay import Relay
from app.services.rendezvous import Rendezvous
from app.services.replays import Replays
from app.services.reporting import Reporting
from app.services.rescue import Rescue
from app.services.retention import Retention
from app.services.returns import Returns
from app.services.schedules import Schedules
from app.services.sealing import Sealing
from app.services.shutdown import Shutdown
from app.services.starts import Starts
from app.services.store_gauges import store_gauges
from app.services.submission import Submission
from app.services.tasks import Tasks
from app.services.timetable import Timetable
from app.services.waiting_gauges import waiting_gauges
from app.services.workers import Workers
from app.settings import Settings
from app.storage.database import Database
from shared.ids import IdMint
from shared.messages import Hello

__all__ = ["Product", "assemble"]


async def assemble(
    settings: Settings,
    database: Database,
    socket_path: Path,
    clock: Clock,
    version: str,
    outside: Outside | None = None,
) -> Product:
    """Make every service over an open store; ``outside`` is the machine unless given."""
    past, outside = await past_of(database), outside or Outside()
    return _Assembly(settings, database, socket_path, clock, past, outside).product(version)


RETRY_AFTER_S = 5.0
"""When to ask again for what cannot be served at the moment."""


class _Assembly:
    """The wiring, in the order in which things need each other."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        socket_path: Path,
        clock: Clock,
        past: Past,
        outside: Outside,
    ) -> None:
        self.settings, self.database, self.clock = settings, database, clock
        writer, epoch, store = database.writer, database.parent_epoch, database.store_id
        self.draw, self.entropy = outside.draw, outside.entropy
        self.mint = IdMint(partial(unix_ms, clock), outside.entropy, past.last_id_body)
        self.tasks, self.ledger, self.fleet = Tasks(), Ledger(), Fleet()
        self.models = Models(Catalogue.of(settings), clock)
        self.launcher = Launcher(settings, f"ipc://{socket_path}", store, epoch, outside.processes)
        self.router = outside.router(socket_path, lambda: writer.depth > settings.queue.writer_max)
        self.fleet.transport = self.router
        self.rendezvous = Rendezvous(socket_path.parent, self.router.keep_path)
        self.recall = Recall(database, self.ledger)
        self.queues = Queues(clock, settings.queue)
        self.relay = Relay(
            self.fleet,
            self.queues,
            writer,
            clock,
            self.recall,
            self.tasks,
            epoch,
            store,
        )
        self.endings = Endings(self.ledger, self.fleet, writer, clock)
        self.returns = Returns(
            self.ledger,
            self.relay,
            self.endings,
            writer,
            clock,
            outside.draw,
            settings.server.resume_wait_s,
        )
        self.starts = Starts(self.fleet, writer, clock, self.mint, self.launcher, self.models)
        self._for_workers(epoch)
        self._for_doors()
        self._for_keeping()
        self._wire()

    def _for_workers(self, epoch: int) -> None:
        """What acts on workers and on what they say."""
        writer, clock, fleet = self.database.writer, self.clock, self.fleet
        set_ = self.settings.worker
        limits = Limits(set_.poison_alone_after, set_.poison_failed_after)
        self.rescue = Rescue(fleet, self.endings, self.returns, writer, clock, limits)
        self.sealing = Sealing(fleet, self.relay, writer, clock, epoch)
        self.workers = Workers(
            fleet,
            self.queues,
            self.relay,
            self.rescue,
            self.endings,
            self.starts,
            self.sealing,
            self.tasks,
            writer,
            clock,
            self.router.drain,
        )
        grace_s = self.settings.worker.stop_grace_s
        self.administration = Administration(
            fleet,
            self.models,
            self.starts,
            lambda worker: self.workers.resume_stop(worker, grace_s),
        )
        self.jobs = Jobs(self.database, self.ledger, self.queues, self.recall)
        self.cancellation = Cancellation(
            self.ledger,
            fleet,
            self.relay,
            self.endings,
            self.jobs,
            writer,
            clock,
            epoch,
            self.settings.server.cancel_wait_s,
        )
        self.preemption = Preemption(fleet, self.relay, writer, clock, epoch)
        self.precedence = Precedence(self.queues, self.preemption)
        self.adoption = Adoption(
            fleet, self.relay, self.rescue, self.cancellation, self.preemption, epoch
        )
        attempts = Attempts(self.endings, self.returns)
        self.ingestion = Ingestion(
            fleet, self.relay, self.endings, self.returns, attempts, writer, clock, epoch
        )
        self.reception = Reception(
            fleet,
            self.router,
            self.ingestion,
            clock,
            epoch,
            self.workers.became_ready,
            self.workers.broken,
            self._greeted,
        )

    def _for_doors(self) -> None:
        """What the doors ask."""
        writer, clock = self.database.writer, self.clock
        self.following = Following(
            self.database, self.ledger, self.fleet, clock, self.settings.server.header_wait_s
        )
        self.deadlines = Deadlines(
            self.relay, self.endings, self.cancellation, self.preemption, self.starts, clock
        )
        self.dependents = Dependents(self.database, self.ledger, self.endings, self.returns)
        self.submission = Submission(
            self.models,
            self.ledger,
            self.fleet,
            self.queues,
            self.relay,
            self.starts,
            self.returns,
            self.endings,
            self.cancellation,
            self.deadlines,
            self.dependents,
            self.jobs,
            self.following,
            Replays(self.database, self.following, clock),
            writer,
            clock,
            self.mint,
            self.settings,
        )
        self.timetable = Timetable(self.database, self.submission, self.tasks, clock, self.entropy)
        self.schedules = Schedules(self.database, self.timetable, self.models, self.mint, clock)
        self.draining = Draining(
            self.ledger,
            self.relay,
            self.cancellation,
            self.preemption,
            self.endings,
            self.returns,
            writer,
            clock,
            self.mint,
            self.tasks,
        )

    def _wire(self) -> None:
        """Calls upwards: who is told what, by those who know nothing of them."""
        self.relay.on_demand = self.starts.want
        self.relay.on_unsendable = self.endings.end_unheld
        self.endings.on_reprieved = self.rescue.take_back
        self.relay.on_sent = self._sent
        self.relay.on_pumped = self.precedence.look
        self.endings.on_ended.append(lambda live, _: self.queues.settle(live))
        # Also of a job that was never sent, whose worker says nothing of the row it has again.
        self.endings.on_ended.append(lambda live, _: self.relay.pump_soon(live.new.model))
        self.returns.on_returned.append(lambda live, _: self.queues.settle(live))
        self.rescue.on_lost = self.workers.lost
        self.starts.on_exit = self.workers.exited
        self.starts.on_failed = self.workers.failed_start
        self.starts.on_overdue = self.workers.broken
        self.ingestion.on_broken = self.workers.broken
        self.ingestion.on_accepted = self.deadlines.watch_attempt
        self.ingestion.on_folded = self.adoption.folded
        self.cancellation.on_unanswered = self.workers.replace
        self._wire_sealing()

    def _wire_sealing(self) -> None:
        sealing, lost = self.sealing, StopReason.PARENT_LOST
        sealing.checkpoint = self.preemption.request
        sealing.abort = lambda live: self.cancellation.request_nowait(live.id, lost)
        self.endings.on_ended.append(sealing.look)
        self.returns.on_returned.append(sealing.look)
        self.ingestion.sealing = sealing.answered
        self.ingestion.on_sealed = sealing.sealed
        self.adoption.on_compared = sealing.send_again

    def _greeted(self, worker: Worker, hello: Hello) -> None:
        self.starts.identified(worker, hello)
        self.adoption.greeted(worker, hello)

    def _sent(self, worker: Worker, live: LiveJob) -> None:
        self.adoption.sent(worker, live)
        self.precedence.sent(worker, live)

    def _for_keeping(self) -> None:
        """What looks after that which has ended."""
        database, tasks, endings, clock = self.database, self.tasks, self.endings, self.clock
        kept = self.settings.retention
        self.retention = Retention(
            database, tasks, endings, self.fleet, clock, kept, self.launcher.logs
        )
        self.compaction = Compaction(database, tasks, endings, clock, kept.jobs_s)
        self.reporting = Reporting.over(
            database, tasks, clock, self.settings, self.mint.endpoint, self.draw
        )

    def _closed(self) -> str | None:
        """Why the server as a whole takes no work now."""
        if self.submission.closed:
            return "stopping"
        if self.draining.draining:
            return "draining"
        return "out of disk space" if self.database.room.short else None

    def _overview(self, version: str) -> Overview:
        metrics = gauges(
            self.ledger,
            self.fleet,
            self.queues,
            self.starts,
            self.workers,
            self.endings,
            self.ingestion,
            self.submission,
            self.reception,
            self.router,
        )
        metrics += store_gauges(self.database, self.retention, self.compaction)
        metrics += self.reporting.gauges()
        metrics += waiting_gauges(self.dependents, self.timetable)
        default = self.settings.models.default
        return Overview(self.models, default, self._closed, self._unavailable, metrics, version)

    def _unavailable(self, model: str) -> tuple[str, float] | None:
        """Why no worker of this model would take a job now, and when to ask again."""
        reason = self.starts.reason(model) or self.administration.leaving(model)
        trouble = self.rendezvous.trouble
        if reason is None and trouble is not None and not self.fleet.is_ready(model):
            return f"no worker can reach this server: {trouble}", RETRY_AFTER_S
        return reason

    def _boot(self) -> Boot:
        return Boot(
            self.database,
            self.ledger,
            self.fleet,
            self.queues,
            self.relay,
            self.returns,
            self.endings,
            self.recall,
            self.cancellation,
            self.deadlines,
            self.dependents,
            self.starts,
            self.sealing,
            self.workers,
            self.launcher,
            self.clock,
        )

    def product(self, version: str) -> Product:
        """Everything, ready to start."""
        settings, clock = self.settings, self.clock
        return Product(
            settings=settings,
            database=self.database,
            tasks=self.tasks,
            router=self.router,
            reception=self.reception,
            ledger=self.ledger,
            fleet=self.fleet,
            boot=self._boot(),
            submission=self.submission,
            following=self.following,
            cancellation=self.cancellation,
            jobs=self.jobs,
            draining=self.draining,
            administration=self.administration,
            overview=self._overview(version),
            shutdown=Shutdown(self.submission, self.draining, settings.server.shutdown_grace_s),
            liveness=Liveness(
                self.fleet,
                self.workers,
                clock,
                settings.worker,
                self.rendezvous.keep,
                lambda: self.router.behind,
            ),
            retention=self.retention,
            compaction=self.compaction,
            reporting=self.reporting,
            accounting=Accounting(self.database, self.fleet, self.sealing, clock),
            workers=self.workers,
            schedules=self.schedules,
            timetable=self.timetable,
        )
