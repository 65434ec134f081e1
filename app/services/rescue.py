"""What becomes of a lost worker's jobs, and of those a returning worker no longer has.

Losing a generation is one operation: its row, its commands, and every job it held. From then on its
frames are void. Jobs with a stop pending end by it; the others go back and on from what was
journaled, attached ones from what this process has in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from app.domain.job import Ending, JobState, StopReason
from app.domain.poison import Limits, Verdict, poisoned
from app.domain.receipts import Rank
from app.domain.transitions import failed, stopped
from app.domain.worker_state import WorkerEvent, WorkerState
from app.services.clock import Clock
from app.services.endings import Endings
from app.services.fleet import Fleet, Worker
from app.services.ledger import LiveJob
from app.services.returns import TOO_MANY_LOSSES, Returns
from app.storage.endings import GiveBack
from app.storage.generations import lose_generation
from app.storage.jobs import give_back
from app.storage.operations import Committed, NewReceipt
from app.storage.writer import OutcomeFuture, Writer
from shared.failures import Failure
from shared.ids import JobId

_log = structlog.get_logger("rescue")

LOST_REQUEST = Failure(
    code="worker_crashed", message="The worker died and nothing is left to go on from."
)
UNSTORABLE = Failure(
    code="internal_error", message="What the worker said of this job could not be stored."
)


@dataclass(slots=True)
class _Loss:
    """What is decided of a lost worker's jobs: each ends, by the stop reason that was known then,
    or goes back."""

    worker: Worker
    reason: str
    counted: bool
    culprit: JobId | None
    convicted: frozenset[JobId]
    ended: list[tuple[LiveJob, Ending, StopReason | None]] = field(
        default_factory=list[tuple[LiveJob, Ending, StopReason | None]]
    )
    returned: list[tuple[LiveJob, GiveBack]] = field(default_factory=list[tuple[LiveJob, GiveBack]])


class Rescue:
    """Takes back what a lost worker held.

    ``on_lost`` is called with a worker once its loss is committed, or could not be.
    """

    def __init__(
        self,
        fleet: Fleet,
        endings: Endings,
        returns: Returns,
        writer: Writer,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._fleet = fleet
        self._endings = endings
        self._returns = returns
        self._writer = writer
        self._clock = clock
        self._limits = limits
        self.on_lost: Callable[[Worker], None] = _nothing

    def lose(
        self,
        worker: Worker,
        reason: str,
        *,
        counted: bool = True,
        blamed: bool = False,
        culprit: JobId | None = None,
    ) -> None:
        """Declare this worker lost; calling it again does nothing.

        ``counted`` is False when the parent itself ends the worker: then no loss is held against
        its jobs. ``blamed`` when one of them may be the cause (``domain/poison.py``); ``culprit``
        is a job that cannot go on anywhere.
        """
        if worker.state in (WorkerState.LOST, WorkerState.GONE):
            return
        worker.move(WorkerEvent.LOSE)
        worker.session.close()
        self._fleet.disconnect(worker)
        _log.warning("worker_lost", generation=worker.generation, reason=reason)
        convicted = self._convicted(worker) if blamed else frozenset[JobId]()
        loss = _Loss(worker, reason, counted, culprit, convicted)
        held = list(worker.held.values())
        worker.held.clear()
        worker.unseen.clear()
        for live in held:
            self._settle(loss, live)
        self._write(loss)

    def _write(self, loss: _Loss) -> None:
        generation, now = loss.worker.generation, self._clock.now()
        operation = lose_generation(
            generation,
            now,
            loss.reason,
            [(live.new, ending, stop) for live, ending, stop in loss.ended],
            [back for _, back in loss.returned],
            NewReceipt(generation=generation, asked=Rank.CRASH, now=now, detail=loss.reason),
        )
        future = self._writer.submit(operation)
        future.add_done_callback(partial(self._lost, loss))

    def reclaim(self, worker: Worker, live: LiveJob) -> None:
        """A living worker does not hold this job: it ends by its pending stop, or goes back."""
        worker.let_go(live)
        if live.stop is not None:
            self._endings.end_unheld(live, None)
        else:
            self.take_back(live)

    def take_back(self, live: LiveJob) -> None:
        """No worker holds this running job, and nothing ends it."""
        if live.request is None and live.attached:
            self._endings.end_unheld(live, LOST_REQUEST)
            return
        back = self._returns.give_back(live, "lost")
        future = self._writer.submit(give_back(back))
        future.add_done_callback(partial(self._reclaimed, live, back))

    def _convicted(self, worker: Worker) -> frozenset[JobId]:
        """Hold the death against jobs that got no further; those that fail by it."""
        verdicts = {
            live.id: live.record.died(live.attempt, self._limits)
            for live in worker.held.values()
            if live.sent
        }
        for job, verdict in verdicts.items():
            if verdict is not Verdict.CLEARED:
                _log.warning("death_held", generation=worker.generation, job=job, verdict=verdict)
        return frozenset(job for job, verdict in verdicts.items() if verdict is Verdict.POISON)

    def _settle(self, loss: _Loss, live: LiveJob) -> None:
        """Decide what becomes of this job."""
        outcome = self._outcome(live, loss.culprit, loss.convicted)
        if outcome is None:
            back = self._returns.give_back(live, "lost", counted=loss.counted)
            loss.returned.append((live, back))
        else:
            ending = self._endings.decide(live, *outcome, complete=live.journaled)
            loss.ended.append((live, ending, live.stop))

    def _settle_again(self, loss: _Loss) -> bool:
        """Decide anew about jobs whose stop was answered with a full disk after it had been counted
        on; False when there is none."""
        ended, loss.ended = loss.ended, []
        for live, ending, stop in ended:
            if live.stop is stop:
                loss.ended.append((live, ending, stop))
            else:
                live.state = JobState.RUNNING
                self._settle(loss, live)
        return any(live.stop is not stop for live, _, stop in ended)

    def _outcome(
        self, live: LiveJob, culprit: JobId | None, convicted: frozenset[JobId]
    ) -> tuple[JobState, Failure | None] | None:
        """How a job of a lost worker ends; None when it goes on."""
        if live.stop is not None:
            return stopped(live.stop)
        if live.id == culprit:
            return failed(UNSTORABLE, None)
        if live.id in convicted:
            return failed(poisoned(live.record.deaths), None)
        if live.attached and live.request is None:
            return failed(LOST_REQUEST, None)
        if not self._returns.can_lose(live):
            return failed(TOO_MANY_LOSSES, None)
        return None

    def _lost(self, loss: _Loss, future: OutcomeFuture) -> None:
        worker = loss.worker
        if future.cancelled() or future.exception() is not None:
            _log.error(
                "loss_not_stored", generation=worker.generation, error=str(future.exception())
            )
        elif isinstance(future.result(), Committed):
            worker.loss_stored = True
        elif self._settle_again(loss):
            self._write(loss)
            return
        else:
            _log.error("loss_void", generation=worker.generation, outcome=str(future.result()))
        for live, ending, _ in loss.ended:
            self._endings.show(live, ending, stored=worker.loss_stored)
        for live, back in loss.returned:
            self._returns.returned(live, back)
        self.on_lost(worker)

    def _reclaimed(self, live: LiveJob, back: GiveBack, future: OutcomeFuture) -> None:
        if future.cancelled() or future.exception() is not None:
            _log.error("give_back_failed", job=live.id, error=str(future.exception()))
        elif isinstance(future.result(), Committed):
            self._returns.returned(live, back)
        else:
            _log.error("give_back_void", job=live.id, outcome=str(future.result()))


def _nothing(*_args: object) -> None:
    """Nobody is wired yet."""
