"""The engine thread's loop: commands in, one frame of events out per engine step.

    RunJob ─▶ preparation thread ─▶ waits ─▶ row ─▶ Accepted ─▶ Delta … ─▶ Finished

Each turn takes in everything that waits, gives free rows to waiting jobs, and makes one step; it
blocks only when there is nothing to compute, or no room for what a step would say. A stop takes
effect before the next step. What one job causes ends that job alone (``_contained``); only
``EngineLost``, or a preparation thread that never comes back, ends the worker.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty
from typing import Final, Protocol, TypeVar, assert_never

import msgspec
import structlog

from shared.failures import Failure
from shared.launch import EXIT_ENGINE_LOST, EXIT_OK, EXIT_ORPHANED
from shared.messages import Cancel, Credit, Event, Exit, Preempt, RunJob, Seal
from worker.attempts import PREPARE_TIMEOUT, Attempts
from worker.engine.engine import Engine, EngineInfo, EngineLost, RowFailed, RowProgress, RowToken
from worker.inbox import Inbox, NotPrepared, Orphaned, Prepared, Resumed, Terminated, ToLoop
from worker.log import origin
from worker.rows import HeldJob, Rows
from worker.vitals import Vitals

INTERNAL_ERROR: Final = Failure("internal_error", "The worker failed while computing this request.")

STEP_FAILED: Final = Failure("engine_error", "The engine failed in a step.", retryable=True)

COMPANIONS_S: Final = 0.02
"""How long rows that have drawn nothing wait, before a step, for prompts still being made. Rows
that begin together end together, and making a prompt takes a fraction of a millisecond."""

FAILED_STEPS_MAX: Final = 2
"""Steps in a row that may raise before the engine counts as lost."""


@dataclass(frozen=True, slots=True)
class _EveryRow:
    """What a step is about."""


_EVERY_ROW: Final = _EveryRow()
_Subject = ToLoop | HeldJob | RowProgress | RowToken | RowFailed | _EveryRow
_About = TypeVar("_About", bound=_Subject)

log = structlog.get_logger()


class Outlet(Protocol):
    """Where frames go: the link, or a test."""

    @property
    def may_step(self) -> bool:
        """Whether there is room for another step's events."""
        ...

    def offer(self, events: Sequence[Event], credit: Credit) -> None:
        """Send these as the next frame."""
        ...

    def ask_for_resumed(self) -> bool:
        """Ask for ``Resumed`` once there is room; False when there is already."""
        ...


class Preparing(Protocol):
    """Where prompts become tokens: the preparation threads, or a test."""

    def submit(self, jobs: Sequence[HeldJob]) -> None:
        """Prepare these; the results come through the inbox."""
        ...

    def overdue(self, now: float) -> list[HeldJob]:
        """Jobs worked on for too long."""
        ...

    def stuck(self, now: float) -> bool:
        """Whether a thread does not come back."""
        ...

    def patience_s(self, now: float) -> float:
        """How long neither can change."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a thread is at a job, even one that was given up."""
        ...


class Loop:
    """See the module. ``run`` returns the exit code once everything held has ended."""

    def __init__(
        self,
        engine: Engine,
        info: EngineInfo,
        rows: Rows,
        inbox: Inbox,
        outlet: Outlet,
        preparing: Preparing,
        vitals: Vitals,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._rows = rows
        self._attempts = Attempts(engine, info, rows)
        self._inbox = inbox
        self._outlet = outlet
        self._preparing = preparing
        self._vitals = vitals
        self._clock = clock
        self._to_prepare: list[HeldJob] = []
        self._failed_steps = 0
        self._exit_code: int | None = None

    def run(self) -> int:
        """Work until told to leave."""
        self._vitals.state = "serving"
        while self._exit_code is None:
            try:
                self.turn()
            except EngineLost as error:
                self._engine_lost(error)
        self._vitals.state = "stopping"
        self._flush()
        return self._exit_code

    def turn(self) -> None:
        """Take in what waits, start what can start, compute one step."""
        self._take_in()
        self._look_after_preparing()
        while (held := self._rows.next_to_start()) is not None:
            self._contained(self._attempts.start, held)
        self._flush()
        if self._rows.running and self._outlet.may_step and self._exit_code is None:
            self._contained(self._step, _EVERY_ROW)
            self._flush()

    # --- the inbox -----------------------------------------------------------------------------

    def _take_in(self) -> None:
        if self._must_wait():
            self._handle_all(self._wait())
        while not self._inbox.empty():
            self._handle_all(self._inbox.get_nowait())
        self._prepare()
        if self._companions_come():
            self._wait_for_companions()

    def _prepare(self) -> None:
        if self._to_prepare:
            self._preparing.submit(self._to_prepare)
            self._to_prepare = []

    def _companions_come(self) -> bool:
        return self._exit_code is None and self._rows.worth_holding

    def _wait_for_companions(self) -> None:
        wait_until = self._clock() + COMPANIONS_S
        while self._companions_come() and (left_s := wait_until - self._clock()) > 0:
            try:
                self._handle_all(self._inbox.get(timeout=left_s))
            except Empty:
                return
            self._prepare()

    def _must_wait(self) -> bool:
        if not self._rows.running:
            return self._rows.next_to_start() is None
        return not self._outlet.may_step and self._outlet.ask_for_resumed()

    def _wait(self) -> Sequence[ToLoop]:
        patience_s = self._preparing.patience_s(self._clock()) if self._preparing_some else None
        try:
            return self._inbox.get(timeout=patience_s)
        except Empty:
            return ()

    def _handle_all(self, messages: Sequence[ToLoop]) -> None:
        for message in messages:
            self._contained(self._handle, message)

    def _handle(self, message: ToLoop) -> None:
        if self._exit_code is not None:
            return
        match message:
            case RunJob():
                self._run_job(message)
            case Prepared():
                self._attempts.prepared(message)
            case NotPrepared():
                self._attempts.not_prepared(message)
            case Cancel() | Preempt():
                self._attempts.asked_to_stop(message)
            case Seal():
                self._seal(message)
            case Exit() | Terminated():
                self._leave(EXIT_OK)
            case Orphaned():
                self._leave(EXIT_ORPHANED)
            case Resumed():
                pass
            case _:
                assert_never(message)

    def _run_job(self, run: RunJob) -> None:
        held = self._attempts.run(run)
        if held is not None:
            self._to_prepare.append(held)

    def _seal(self, command: Seal) -> None:
        self._rows.saw(command.command)
        body = msgspec.msgpack.encode(self._attempts.totals.sealed())
        self._attempts.answer(command.command, "sealed", body)

    # --- preparing -----------------------------------------------------------------------------

    @property
    def _preparing_some(self) -> bool:
        return self._rows.pending > 0 or self._preparing.busy

    def _look_after_preparing(self) -> None:
        if not self._preparing_some:
            return
        now = self._clock()
        for held in self._preparing.overdue(now):
            if self._rows.find(held.run.job, held.run.attempt) is held:
                self._attempts.fail(held, PREPARE_TIMEOUT)
        if self._preparing.stuck(now):
            log.error("a preparation thread does not come back")
            self._leave(EXIT_ENGINE_LOST)

    # --- the engine ----------------------------------------------------------------------------

    def _step(self, _: _EveryRow) -> None:
        began = self._clock()
        result = self._engine.step()
        self._failed_steps = 0
        vitals = self._vitals
        vitals.chunk_s_max = max(vitals.chunk_s_max, self._clock() - began)
        vitals.steps += 1
        for progress in result.progress:
            self._contained(self._attempts.progress, progress)
        for token in result.tokens:
            self._contained(self._attempts.token, token)
        for failed in result.failed:
            self._contained(self._attempts.row_failed, failed)

    def _contained(self, act: Callable[[_About], None], about: _About) -> None:
        """Do something about one job; if it breaks, that job fails and nothing else."""
        try:
            act(about)
        except EngineLost:
            raise
        except Exception as error:  # noqa: BLE001 - the loop's top
            self._broken(error, about)

    def _broken(self, error: Exception, about: _Subject) -> None:
        held = self._held_by(about)
        if isinstance(about, _EveryRow):
            self._step_failed(error)
        elif held is not None:
            run = held.run
            log.error("job broke the loop", job=run.job, attempt=run.attempt, **origin(error))
            self._attempts.fail(held, INTERNAL_ERROR)
        elif isinstance(about, RunJob):
            log.error("command broke", job=about.job, attempt=about.attempt, **origin(error))
            self._attempts.broken(about, INTERNAL_ERROR)
        else:
            log.error("message broke", kind=type(about).__name__, **origin(error))

    def _step_failed(self, error: Exception) -> None:
        """The engine did not say whose fault it was: every row pays, and the worker only if the
        next step fails too."""
        self._failed_steps += 1
        if self._failed_steps >= FAILED_STEPS_MAX:
            raise EngineLost(f"{self._failed_steps} steps in a row failed") from error
        log.error("step failed", **origin(error))
        for held in self._rows.running_jobs():
            self._attempts.fail(held, STEP_FAILED)

    def _held_by(self, about: _Subject) -> HeldJob | None:
        match about:
            case HeldJob():
                return about
            case RowProgress() | RowToken() | RowFailed():
                return self._rows.at(about.row)
            case RunJob() | Cancel() | Preempt() | Prepared() | NotPrepared():
                return self._rows.find(about.job, about.attempt)
            case _:
                return None

    def _flush(self) -> None:
        """Hand the gathered events over as one frame."""
        self._vitals.rows = self._rows.running
        self._vitals.pending = self._rows.pending
        events = self._attempts.take_events()
        if events:
            self._outlet.offer(events, self._credit())

    def _credit(self) -> Credit:
        leaving = self._exit_code is not None
        return Credit(0, 0, self._rows.last_command) if leaving else self._rows.credit

    # --- leaving -------------------------------------------------------------------------------

    def _leave(self, exit_code: int) -> None:
        """Stop everything; the loop ends with this turn."""
        if self._exit_code is None:
            self._exit_code = exit_code
        self._attempts.stop_all("exit")
        self._to_prepare = []

    def _engine_lost(self, error: EngineLost) -> None:
        log.error("engine lost", **origin(error))
        text = str(error) or "The engine was lost."
        self._attempts.lose(Failure("engine_error", text, retryable=True))
        self._exit_code = EXIT_ENGINE_LOST
