"""Workers over their life, from their first word to the end of their process.

    Hello ─▶ Ready ─▶ jobs ─▶ (``sealing``: receipt) ─▶ Exit ─▶ gone
      └──────── dies ───┴──▶ lost ─▶ gone ─▶ (``starts``: needed again?)

A death is acted on in this order: take in what the worker still said, declare the generation lost
with all it held, then, its process being gone, let a replacement start. No process is told to leave
or killed before the receipt of its generation is committed: nothing else in the server signals.
"""

import asyncio
import signal
from collections.abc import Callable
from functools import partial

import structlog

from app.domain.job import Durability, JobState
from app.domain.receipts import Rank
from app.domain.report_errors import StopIncomplete
from app.domain.worker_state import WorkerEvent, WorkerState
from app.services.clock import Clock
from app.services.endings import Endings
from app.services.fleet import Fleet, Worker
from app.services.queues import Queues
from app.services.relay import Relay
from app.services.rescue import Rescue
from app.services.sealing import Sealing
from app.services.starts import Starts
from app.services.tasks import Tasks
from app.storage.generations import generation_gone, generation_ready
from app.storage.operations import NewReceipt, Operation, Void
from app.storage.writer import OutcomeFuture, Writer
from app.supervision.log_file import last_lines
from app.supervision.process import Exit as ProcessExit
from shared.failures import Failure
from shared.ids import JobId
from shared.messages import Exit, Ready

REASON_LINES = 5
"""Last log lines of a dead worker that go into the reason people are told."""

UNRECORDED_S = 5.0
"""How long a stop waits for losses to be recorded before it leaves the processes alone."""

_log = structlog.get_logger("workers")


class Workers:
    """Acts on what becomes of workers.

    Args:
        drain_socket: takes in everything that has arrived on the socket, now.
    """

    def __init__(
        self,
        fleet: Fleet,
        queues: Queues,
        relay: Relay,
        rescue: Rescue,
        endings: Endings,
        starts: Starts,
        sealing: Sealing,
        tasks: Tasks,
        writer: Writer,
        clock: Clock,
        drain_socket: Callable[[], None],
    ) -> None:
        self._fleet = fleet
        self._queues = queues
        self._relay = relay
        self._rescue = rescue
        self._endings = endings
        self._starts = starts
        self._sealing = sealing
        self._tasks = tasks
        self._writer = writer
        self._clock = clock
        self._drain_socket = drain_socket
        self._stopping = False
        self.deaths = 0

    def became_ready(self, worker: Worker, ready: Ready) -> None:
        """The worker takes jobs from now on (or again, after it came back)."""
        worker.ready = ready
        worker.credited(ready.credit)
        if worker.state is WorkerState.STARTING:
            worker.move(WorkerEvent.READY)
            self._writer.submit(
                generation_ready(worker.generation, self._clock.now(), ready.fingerprint)
            )
            _log.info(
                "worker_ready",
                generation=worker.generation,
                model=worker.model,
                load_s=round(ready.load_s, 2),
                arithmetic=ready.arithmetic,
            )
        self._starts.ready(worker)
        self._relay.pump(worker.model)

    def broken(self, worker: Worker, reason: str, culprit: JobId | None = None) -> None:
        """This worker cannot be worked with: its jobs are taken back, then its process is
        killed."""
        self._give_up(worker, reason, counted=True, culprit=culprit)

    def stalled(self, worker: Worker, reason: str) -> None:
        """This worker does nothing any more: killed by us, but the death is held against those of
        its jobs that do not get on."""
        self._give_up(worker, reason, counted=True, blamed=True)

    def replace(self, worker: Worker, reason: str) -> None:
        """The parent gives this worker up for its own reasons: nothing is held against its jobs."""
        self._give_up(worker, reason, counted=False)

    def lost(self, worker: Worker) -> None:
        """The loss is committed: only now may the process be ended."""
        self._sealing.changed(worker)
        if not worker.given_up or not worker.loss_stored or worker.state is WorkerState.GONE:
            return
        if worker.process is not None:
            worker.process.signal(signal.SIGKILL)
        else:
            self._over(worker, ProcessExit())
            self._start_if_wanted(worker.model)

    def failed_start(self, worker: Worker, reason: str) -> None:
        """The process could not even be started."""
        _log.error("worker_start_failed", generation=worker.generation, reason=reason)
        self._died(worker, ProcessExit(), reason)

    def exited(self, worker: Worker, exit_: ProcessExit) -> None:
        """The process is dead."""
        self._drain_socket()
        if worker.state is WorkerState.STOPPING and not worker.held:
            self._over(worker, exit_)
            self._start_if_wanted(worker.model)
            return
        lines = last_lines(worker.log_path, REASON_LINES)
        reason = str(exit_) + (f"; last log lines: {' | '.join(lines)}" if lines else "")
        self._died(worker, exit_, reason)

    async def stop(self, grace_s: float) -> None:
        """Stop every worker: told to exit once that is durable, killed after ``grace_s``."""
        self._stopping = True
        self._starts.stop()
        for worker in self._fleet:
            if worker.state not in (WorkerState.LOST, WorkerState.GONE):
                self._tasks.spawn(self._seal_and_tell(worker, grace_s), f"stop {worker.generation}")
        try:
            async with asyncio.timeout(grace_s):
                await self._fleet.empty.wait()
        except TimeoutError:
            for worker in self._fleet:
                self.replace(worker, "did not stop in time")
            await self._see_them_die()

    async def _see_them_die(self) -> None:
        """Wait for the others' deaths. A receipt that cannot be written stops nothing: then its
        process is left to leave by itself, and the next start makes up for it."""
        try:
            async with asyncio.timeout(UNRECORDED_S):
                await self._fleet.empty.wait()
        except TimeoutError:
            left = [worker.generation for worker in self._fleet]
            _log.warning("workers_left", generations=left)

    def _give_up(
        self,
        worker: Worker,
        reason: str,
        *,
        counted: bool,
        blamed: bool = False,
        culprit: JobId | None = None,
    ) -> None:
        worker.given_up = True
        if worker.state is WorkerState.LOST:
            self.lost(worker)
        else:
            self._rescue.lose(worker, reason, counted=counted, blamed=blamed, culprit=culprit)

    def resume_stop(self, worker: Worker, patience_s: float) -> None:
        """Somebody was stopping this worker, an earlier parent perhaps: bring that to its end."""
        self._tasks.spawn(self._finish_stop(worker, patience_s), f"stop {worker.generation}")

    async def _finish_stop(self, worker: Worker, patience_s: float) -> None:
        await self._seal_and_tell(worker, patience_s)
        if worker.stop is None or not worker.stop.sealed:
            self.replace(worker, "a stop that was begun did not come to its end")

    async def _seal_and_tell(self, worker: Worker, patience_s: float) -> None:
        """Its receipt first; then the worker is told to leave."""
        try:
            await self._sealing.seal(worker, 0.0, patience_s)
        except StopIncomplete as error:
            _log.warning("stop_incomplete", generation=worker.generation, reason=error.message)
        else:
            self._tell_to_exit(worker)

    def _tell_to_exit(self, worker: Worker) -> None:
        if worker.identity is not None:
            exit_ = Exit(worker.session.epoch, worker.generation, "the server is stopping")
            self._fleet.send(worker, [exit_])
        elif worker.process is not None:
            worker.process.signal(signal.SIGTERM)
        else:
            self._over(worker, ProcessExit())

    def _died(self, worker: Worker, exit_: ProcessExit, reason: str) -> None:
        self.deaths += 1
        unasked = not worker.given_up and not self._stopping
        alone = self._queues.runs_alone(worker)
        unseen = (
            worker.adopted and worker.session.heard_at is None
        )  # it died with an earlier parent
        self._starts.died(worker, reason, charged=unasked and not alone and not unseen)
        self._rescue.lose(
            worker, str(exit_), counted=not self._stopping, blamed=unasked and not unseen
        )
        self._over(worker, exit_)
        if worker.ready is None and not worker.adopted and not self._stopping:
            self._fail_waiting(worker.model)
        self._start_if_wanted(worker.model)

    def _start_if_wanted(self, model: str) -> None:
        if self._queues.waits_for(model):
            self._starts.want(model)

    def _over(self, worker: Worker, exit_: ProcessExit) -> None:
        worker.move(WorkerEvent.DIE)
        self._fleet.remove(worker)
        self._sealing.changed(worker)
        now, generation = self._clock.now(), worker.generation
        receipt = NewReceipt(generation=generation, asked=Rank.CRASH, now=now, detail=str(exit_))
        gone = generation_gone(
            generation, now, exit_.code, exit_.signal_number, str(exit_), receipt
        )
        future = self._writer.submit(gone)
        future.add_done_callback(partial(self._gone, gone))
        _log.info("worker_gone", generation=worker.generation, exit=str(exit_))
        self._starts.start_next()

    def _gone(self, gone: Operation, future: OutcomeFuture) -> None:
        """Where the loss before it had to be decided again, it comes once more, behind that."""
        if future.cancelled() or future.exception() is not None:
            _log.error("death_not_stored", operation=gone.name, subject=gone.subjects[0])
        elif isinstance(future.result(), Void):
            self._writer.submit(gone)

    def _fail_waiting(self, model: str) -> None:
        """A worker that died before it was ready: callers who wait for it are told why, now.
        Durable jobs wait on: the cause may be cured before their deadline."""
        failure = Failure(code="model_unavailable", message=self._starts.told(model))
        for live in self._queues.of_model(model):
            foreground = live.new.durability is not Durability.DURABLE
            if foreground and self._relay.withdraw(live):
                self._endings.end_waiting(live, JobState.FAILED, failure)
