"""Starting worker processes: on demand, one at a time, within the restart budget.

    need ─▶ row committed ─▶ spawn ─▶ (Hello ─▶ Ready: see ``workers``)

The generation's row is committed before the spawn, so no process is ever unknown to the store. A
replacement starts only when the death of the one before was seen.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial

import structlog

from app.catalogue.entries import ModelEntry
from app.dispatch.sessions import Session
from app.domain.errors import ModelUnavailable
from app.domain.restart import RestartBudget
from app.domain.view import RestartView
from app.domain.worker_state import WorkerState
from app.services.clock import Clock
from app.services.fleet import Fleet, Worker
from app.services.launching import Launcher
from app.services.models import Models
from app.storage.generations import generation_process, insert_generation
from app.storage.writer import OutcomeFuture, Writer
from app.supervision.process import Exit
from shared.ids import IdMint
from shared.messages import Hello

_ALIVE = frozenset({WorkerState.STARTING, WorkerState.READY})
_log = structlog.get_logger("starts")


class _Slot:
    """What is remembered of one model between its workers."""

    __slots__ = ("budget", "model", "reason", "served_at", "timer")

    def __init__(self, model: str, budget: RestartBudget) -> None:
        self.model = model
        self.budget = budget
        self.reason: str | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.served_at: datetime | None = None


class Starts:
    """Decides when a worker is started, and starts it.

    ``on_exit`` is called when a started process has died, ``on_failed`` when one could not even be
    started, ``on_overdue`` when one is not ready in time.
    """

    def __init__(
        self,
        fleet: Fleet,
        writer: Writer,
        clock: Clock,
        mint: IdMint,
        launcher: Launcher,
        models: Models,
    ) -> None:
        self._fleet = fleet
        self._writer = writer
        self._clock = clock
        self._mint = mint
        self._launcher = launcher
        self._models = models
        self._slots: dict[str, _Slot] = {}
        self._queue: list[str] = []
        self._stopping = False
        self.on_exit: Callable[[Worker, Exit], None] = _nothing
        self.on_failed: Callable[[Worker, str], None] = _nothing
        self.on_overdue: Callable[[Worker, str], None] = _nothing
        self.started = 0

    def check(self, model: str) -> None:
        """Whether somebody who waits could be served.

        Raises:
            ModelUnavailable: its workers died too often; says when the next try is.
        """
        found = self.reason(model)
        if found is not None and self._fleet.serving(model) is None:
            raise ModelUnavailable(found[0], retry_after_s=found[1])

    def want(self, model: str) -> None:
        """See that a worker of this model runs, or will as soon as it may."""
        if self._stopping or self._fleet.serving(model) is not None:
            return
        slot = self._slot(model)
        if slot.timer is None:
            self._start_in(slot, slot.budget.wait_s(self._clock.monotonic()))

    def reason(self, model: str) -> tuple[str, float] | None:
        """Why no worker of this model can be started now, and for how many seconds."""
        slot = self._slots.get(model)
        if slot is None or not slot.budget.exhausted:
            return None
        return self.told(model), slot.budget.wait_s(self._clock.monotonic())

    def told(self, model: str) -> str:
        """What people are told of the model's last failed worker."""
        reason = self._slot(model).reason
        if reason is None:
            return f"No worker for model '{model}' became ready."
        return f"No worker for model '{model}' could be started: {reason}"

    def reset(self, model: str) -> RestartView:
        """Forget what the model's workers died of: the cause is cured. One that is to start when
        the budget allows it starts now."""
        slot = self._slot(model)
        slot.budget.reset()
        slot.reason = None
        if slot.timer is not None:
            slot.timer.cancel()
            self._due(slot)
        return self._restart(slot)

    def restarts(self) -> list[RestartView]:
        """How it stands with each model that this parent has started workers of."""
        return [self._restart(slot) for slot in self._slots.values()]

    def _restart(self, slot: _Slot) -> RestartView:
        now, budget = self._clock.monotonic(), slot.budget
        return RestartView(
            model=slot.model,
            deaths=budget.deaths(now),
            limit=budget.limit,
            window_s=budget.window_s,
            exhausted=budget.exhausted,
            next_try_s=budget.wait_s(now) or None,
            reason=slot.reason,
        )

    def served_since(self, model: str, when: datetime) -> bool:
        """Whether a worker of this model was ready at any time since then, as far as this parent
        knows."""
        served_at = self._slot(model).served_at
        return self._fleet.is_ready(model) or (served_at is not None and served_at >= when)

    def ready(self, worker: Worker) -> None:
        """A worker became ready."""
        slot = self._slot(worker.model)
        slot.served_at = self._clock.now()
        slot.budget.ready()
        self.start_next()

    def died(self, worker: Worker, reason: str, *, charged: bool) -> None:
        """A worker died that was not asked to leave; ``charged`` unless the parent killed it."""
        slot = self._slot(worker.model)
        slot.reason = reason
        if worker.ready is not None:
            slot.served_at = self._clock.now()
        if charged:
            now = self._clock.monotonic()
            slot.budget.died(now, now - worker.created_at)

    def start_next(self) -> None:
        """Start the next model in line, unless one is loading or its predecessor still lives."""
        if not self._queue or any(w.state is WorkerState.STARTING for w in self._fleet):
            return
        for model in self._queue:
            if not any(worker.model == model for worker in self._fleet):
                self._queue.remove(model)
                self._create(model)
                return

    def stop(self) -> None:
        """Start nothing any more."""
        self._stopping = True
        self._queue.clear()
        for slot in self._slots.values():
            if slot.timer is not None:
                slot.timer.cancel()

    def _slot(self, model: str) -> _Slot:
        slot = self._slots.get(model)
        if slot is None:
            slot = self._slots[model] = _Slot(model, self._launcher.restart_budget())
        return slot

    def _start_in(self, slot: _Slot, wait_s: float) -> None:
        if wait_s:
            loop = asyncio.get_running_loop()
            slot.timer = loop.call_later(wait_s, self._due, slot)
        else:
            self._due(slot)

    def _due(self, slot: _Slot) -> None:
        slot.timer = None
        if slot.model not in self._queue and not self._stopping:
            self._queue.append(slot.model)
            self.start_next()

    def _create(self, model: str) -> None:
        entry = self._models.find(model)
        if entry is None:
            self._slot(model).reason = "the model is not on this machine any more"
            _log.warning("model_missing", model=model)
            return
        generation = self._mint.generation()
        worker = Worker(
            generation=generation,
            model=model,
            session=Session(generation, self._launcher.epoch, self._launcher.store),
            log_path=self._launcher.log_path(generation),
            created_at=self._clock.monotonic(),
        )
        self._fleet.add(worker)
        operation = insert_generation(
            generation, model, self._launcher.epoch, worker.log_path, self._clock.now()
        )
        future = self._writer.submit(operation)
        future.add_done_callback(partial(self._spawn, worker, entry))

    def _spawn(self, worker: Worker, entry: ModelEntry, future: OutcomeFuture) -> None:
        if future.cancelled() or future.exception() is not None:
            self.on_failed(worker, f"its row could not be written: {future.exception()}")
            return
        if worker.state is WorkerState.STOPPING:  # nothing to kill, and nobody who would say so
            self.on_exit(worker, Exit())
            return
        if worker.state is not WorkerState.STARTING:
            return
        try:
            worker.process = self._launcher.spawn(
                worker.generation, entry, partial(self.on_exit, worker)
            )
        except OSError as error:
            self.on_failed(worker, f"the process could not be started: {error}")
            return
        self._spawned(worker, worker.process.pid)

    def _spawned(self, worker: Worker, pid: int) -> None:
        self.started += 1
        process = self._launcher.processes.started(pid)
        if process is not None:  # what names it for good, for a later parent that must find it
            self._writer.submit(generation_process(worker.generation, pid, process))
        self.expect_ready(worker)
        _log.info("worker_started", generation=worker.generation, model=worker.model, pid=pid)

    def identified(self, worker: Worker, hello: Hello) -> None:
        """The worker says which process it is. No row does, if the parent that had started it ended
        right afterwards: then this one watches it from here on."""
        if worker.process is not None or worker.state not in _ALIVE:
            return
        worker.process = self._launcher.adopt(
            hello.pid, hello.pid_started, partial(self.on_exit, worker)
        )
        if worker.process is None:
            self.on_overdue(worker, "its process is not where it says")
            return
        self._writer.submit(generation_process(worker.generation, hello.pid, hello.pid_started))

    def expect_ready(self, worker: Worker) -> None:
        """The worker is given up unless it is ready in time."""
        loop = asyncio.get_running_loop()
        loop.call_later(self._launcher.ready_timeout_s, self._overdue, worker)

    def _overdue(self, worker: Worker) -> None:
        if worker.state is WorkerState.STARTING:
            self.on_overdue(worker, f"not ready after {self._launcher.ready_timeout_s:g} s")


def _nothing(*_args: object) -> None:
    """Nobody is wired yet."""
