"""Worker processes over their life: started on demand, watched, replaced, stopped.

    need ─▶ row committed ─▶ spawn ─▶ Hello ─▶ Ready ─▶ jobs ─▶ Exit ─▶ gone
                                └──────── dies ────────┴──▶ lost ─▶ gone ─▶ need?

The generation's row is committed before the spawn, so no process is ever unknown to the store. One
worker is loaded at a time. A replacement starts only when the death of the one before was seen.
"""

import asyncio
import signal
from collections.abc import Callable
from functools import partial

import structlog

from app.catalogue.entries import ModelEntry
from app.dispatch.sessions import Session
from app.domain.errors import ModelUnavailable
from app.domain.job import JobState
from app.domain.restart import RestartBudget
from app.domain.worker_state import WorkerEvent, WorkerState
from app.services.clock import Clock
from app.services.endings import Endings
from app.services.fleet import Fleet, Worker
from app.services.launching import Launcher
from app.services.relay import Relay
from app.services.rescue import Rescue
from app.storage.generations import (
    generation_gone,
    generation_process,
    generation_ready,
    insert_generation,
    stop_generation,
)
from app.storage.writer import OutcomeFuture, Writer
from app.supervision.log_file import last_lines
from app.supervision.process import Exit as ProcessExit
from app.supervision.process import process_started
from shared.failures import Failure
from shared.ids import IdMint
from shared.messages import Exit, Ready

REASON_LINES = 5
"""Last log lines of a dead worker that go into the reason people are told."""

_log = structlog.get_logger("workers")


class _Slot:
    """What is remembered of one model between its workers."""

    __slots__ = ("budget", "entry", "reason", "timer")

    def __init__(self, entry: ModelEntry, budget: RestartBudget) -> None:
        self.entry = entry
        self.budget = budget
        self.reason: str | None = None
        self.timer: asyncio.TimerHandle | None = None


class Workers:
    """Starts and stops workers; one a model."""

    def __init__(
        self,
        fleet: Fleet,
        relay: Relay,
        rescue: Rescue,
        endings: Endings,
        writer: Writer,
        clock: Clock,
        mint: IdMint,
        launcher: Launcher,
        drain_socket: Callable[[], None],
    ) -> None:
        self._fleet = fleet
        self._relay = relay
        self._rescue = rescue
        self._endings = endings
        self._writer = writer
        self._clock = clock
        self._mint = mint
        self._launcher = launcher
        self._drain_socket = drain_socket
        self._slots: dict[str, _Slot] = {}
        self._queue: list[str] = []
        self._stopping = False
        self._empty = asyncio.Event()
        self._empty.set()
        self.starts = 0
        self.deaths = 0

    def ensure(self, entry: ModelEntry) -> None:
        """See that a worker of this model runs, or will as soon as it may.

        Raises:
            ModelUnavailable: when its workers died too often; says when the next try is.
        """
        if self._stopping or self._fleet.serving(entry.id) is not None:
            return
        slot = self._slots.get(entry.id)
        if slot is None:
            slot = self._slots[entry.id] = _Slot(entry, self._launcher.restart_budget())
        slot.entry = entry
        wait_s = slot.budget.wait_s(self._clock.monotonic())
        if wait_s and slot.budget.exhausted:
            raise ModelUnavailable(self._unavailable(slot), retry_after_s=wait_s)
        self._start_in(slot, wait_s)

    def reason(self, model: str) -> tuple[str, float] | None:
        """Why no worker of this model can be started now, and for how many seconds."""
        slot = self._slots.get(model)
        if slot is None or not slot.budget.exhausted:
            return None
        return self._unavailable(slot), slot.budget.wait_s(self._clock.monotonic())

    def became_ready(self, worker: Worker, ready: Ready) -> None:
        """The worker takes jobs from now on (or again, after a reconnect)."""
        worker.ready = ready
        worker.credited(ready.credit)
        if worker.state is WorkerState.STARTING:
            worker.move(WorkerEvent.READY)
            self._slots[worker.model].budget.ready()
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
        self._relay.pump(worker.model)
        self._start_next()

    def replace(self, worker: Worker, reason: str) -> None:
        """Give this worker up: its jobs are taken back now, its process is killed."""
        self._rescue.lose(worker, reason)
        if worker.process is not None:
            worker.process.signal(signal.SIGKILL)

    async def stop(self, grace_s: float) -> None:
        """Stop every worker: told to exit once that is durable, killed after ``grace_s``."""
        self._stopping = True
        self._queue.clear()
        for slot in self._slots.values():
            if slot.timer is not None:
                slot.timer.cancel()
        for worker in self._fleet:
            self._stop(worker)
        try:
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        except TimeoutError:
            for worker in self._fleet:
                self.replace(worker, "did not stop in time")
            await self._empty.wait()

    def _stop(self, worker: Worker) -> None:
        if worker.state not in (WorkerState.STARTING, WorkerState.READY):
            return
        worker.move(WorkerEvent.STOP)
        future = self._writer.submit(stop_generation(worker.generation))
        future.add_done_callback(partial(self._tell_to_exit, worker))

    def _tell_to_exit(self, worker: Worker, _future: OutcomeFuture) -> None:
        if worker.identity is not None:
            exit_ = Exit(worker.session.epoch, worker.generation, "the server is stopping")
            self._fleet.send(worker, [exit_])
        elif worker.process is not None:
            worker.process.signal(signal.SIGTERM)
        else:
            self._over(worker, ProcessExit())

    def _start_in(self, slot: _Slot, wait_s: float) -> None:
        if slot.timer is not None:
            return
        if wait_s:
            loop = asyncio.get_running_loop()
            slot.timer = loop.call_later(wait_s, self._due, slot)
        else:
            self._due(slot)

    def _due(self, slot: _Slot) -> None:
        slot.timer = None
        if slot.entry.id not in self._queue and not self._stopping:
            self._queue.append(slot.entry.id)
            self._start_next()

    def _start_next(self) -> None:
        """Start the next model in line, unless one is loading or its predecessor still lives."""
        if not self._queue or any(w.state is WorkerState.STARTING for w in self._fleet):
            return
        model = self._queue[0]
        if any(worker.model == model for worker in self._fleet):
            return
        self._queue.pop(0)
        self._create(self._slots[model])

    def _create(self, slot: _Slot) -> None:
        generation = self._mint.generation()
        worker = Worker(
            generation=generation,
            model=slot.entry.id,
            session=Session(generation, self._launcher.epoch, self._launcher.store),
            log_path=self._launcher.log_path(generation),
            created_at=self._clock.monotonic(),
        )
        self._fleet.add(worker)
        self._empty.clear()
        operation = insert_generation(
            generation,
            slot.entry.id,
            self._launcher.epoch,
            worker.log_path,
            self._clock.now(),
        )
        future = self._writer.submit(operation)
        future.add_done_callback(partial(self._spawn, worker, slot.entry))

    def _spawn(self, worker: Worker, entry: ModelEntry, future: OutcomeFuture) -> None:
        if worker.state is not WorkerState.STARTING:
            return
        if future.cancelled() or future.exception() is not None:
            self._fail_start(worker, f"its row could not be written: {future.exception()}")
            return
        try:
            worker.process = self._launcher.spawn(
                worker.generation, entry, partial(self._exited, worker)
            )
        except OSError as error:
            self._fail_start(worker, f"the process could not be started: {error}")
            return
        self.starts += 1
        self._record_process(worker, worker.process.pid)
        loop = asyncio.get_running_loop()
        loop.call_later(self._launcher.ready_timeout_s, self._ready_overdue, worker)
        _log.info(
            "worker_started",
            generation=worker.generation,
            model=worker.model,
            pid=worker.process.pid,
        )

    def _record_process(self, worker: Worker, pid: int) -> None:
        """What names the process for good, for a later parent that must find it."""
        started = process_started(pid)
        if started is not None:
            self._writer.submit(generation_process(worker.generation, pid, started))

    def _fail_start(self, worker: Worker, reason: str) -> None:
        _log.error("worker_start_failed", generation=worker.generation, reason=reason)
        self._slots[worker.model].reason = reason
        self._died(worker, ProcessExit(), reason)

    def _ready_overdue(self, worker: Worker) -> None:
        if worker.state is WorkerState.STARTING:
            self.replace(worker, f"not ready after {self._launcher.ready_timeout_s:g} s")

    def _exited(self, worker: Worker, exit_: ProcessExit) -> None:
        """The process is dead: fold what it still said, then take back what it held."""
        self._drain_socket()
        if worker.state is WorkerState.STOPPING:
            self._over(worker, exit_)
            return
        lines = last_lines(worker.log_path, REASON_LINES)
        reason = str(exit_) + (f"; last log lines: {' | '.join(lines)}" if lines else "")
        self._died(worker, exit_, reason)

    def _died(self, worker: Worker, exit_: ProcessExit, reason: str) -> None:
        self.deaths += 1
        slot = self._slots[worker.model]
        slot.reason = reason
        now = self._clock.monotonic()
        slot.budget.died(now, now - worker.created_at)
        self._rescue.lose(worker, str(exit_))
        self._over(worker, exit_)
        if worker.ready is None:
            self._fail_waiting(slot)
        if self._relay.waiting(worker.model) and not self._stopping:
            self._start_in(slot, slot.budget.wait_s(now))

    def _over(self, worker: Worker, exit_: ProcessExit) -> None:
        worker.move(WorkerEvent.DIE)
        self._fleet.remove(worker)
        self._writer.submit(
            generation_gone(
                worker.generation, self._clock.now(), exit_.code, exit_.signal_number, str(exit_)
            )
        )
        _log.info("worker_gone", generation=worker.generation, exit=str(exit_))
        if not len(self._fleet):
            self._empty.set()
        self._start_next()

    def _fail_waiting(self, slot: _Slot) -> None:
        """A worker that died before it was ready: whoever waits for it is told why, now."""
        failure = Failure(code="model_unavailable", message=self._unavailable(slot))
        for live in self._relay.waiting(slot.entry.id):
            if self._relay.withdraw(live):
                self._endings.end_waiting(live, JobState.FAILED, failure)

    def _unavailable(self, slot: _Slot) -> str:
        return f"No worker for model '{slot.entry.id}' could be started: {slot.reason}"
