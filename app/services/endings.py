"""How a job's ending becomes true: decided once in memory, committed, then shown.

Every ending takes this way, whoever causes it: the pending state moves, an operation holds the
row's ending and its report, and after the commit the followers see ``Ended`` and the job leaves the
ledger.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

import msgspec
import structlog

from app.domain.errors import TemplateRefused
from app.domain.events import Ended
from app.domain.job import Durability, Ending, JobState, NewJob, StopReason
from app.domain.transitions import failed, stopped
from app.services.clock import Clock
from app.services.fleet import Fleet
from app.services.ledger import Ledger, LiveJob
from app.storage.jobs import end_running_job, end_waiting_job
from app.storage.operations import Committed, Operation, Void
from app.storage.writer import OutcomeFuture, Writer
from shared.failures import Failure

QUOTING: Final = {TemplateRefused.code: TemplateRefused().message}
"""Codes whose messages may quote the request, and what is stored in their place."""

_log = structlog.get_logger("endings")


class Endings:
    """Decides, writes and shows endings.

    ``on_ended`` is called with each job whose ending was shown, ``on_reprieved`` with one that no
    worker holds and that was to end by a stop which then found no room.
    """

    def __init__(self, ledger: Ledger, fleet: Fleet, writer: Writer, clock: Clock) -> None:
        self._ledger = ledger
        self._fleet = fleet
        self._writer = writer
        self._clock = clock
        self.on_ended: list[Callable[[LiveJob, Ending], None]] = []
        self.on_reprieved: Callable[[LiveJob], None] = _nothing
        self.counts: dict[JobState, int] = dict.fromkeys(
            (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED), 0
        )

    def decide(
        self,
        live: LiveJob,
        state: JobState,
        failure: Failure | None,
        *,
        complete: bool = True,
        now: datetime | None = None,
    ) -> Ending:
        """The job ends so, ``now`` if no other time is given; its pending state is final from here
        on."""
        live.state = state
        return Ending(
            job=live.id,
            attempt=live.attempt,
            state=state,
            finish_reason=live.output.finish_reason if state is JobState.COMPLETED else None,
            failure=failure if state is JobState.FAILED else None,
            usage=live.usage,
            finalized_at=now or self._clock.now(),
            started_at=live.started_at,
            complete=complete,
        )

    def show(self, live: LiveJob, ending: Ending, *, stored: bool = True) -> None:
        """The ending is committed. One that could not be ``stored`` is shown only to whoever is
        tied to this process: a job that outlives it has not ended, and the next start ends it."""
        if not stored and live.journaled:
            return
        self.counts[ending.state] += 1
        live.channel.publish(Ended(seq=live.take_seq(), ending=ending))
        self._ledger.remove(live)
        _log.info(
            "job_ended",
            job=live.id,
            attempt=ending.attempt,
            generation=live.generation,
            state=ending.state,
            finish_reason=ending.finish_reason,
            code=ending.failure.code if ending.failure else None,
            prompt_tokens=ending.usage.prompt_tokens,
            completion_tokens=ending.usage.completion_tokens,
        )
        for told in self.on_ended:
            told(live, ending)

    def end_waiting(self, live: LiveJob, state: JobState, failure: Failure | None) -> None:
        """End a job that no worker holds and that is in no queue any more."""
        before = live.state
        ending = self.decide(live, state, failure)
        self._write(live, ending, end_waiting_job(live.new, ending, before))

    def end_unheld(self, live: LiveJob, failure: Failure | None) -> None:
        """End a claimed job that its worker turned out not to hold: by its pending stop, if there
        is one, else with this failure."""
        worker = self._fleet.get(live.generation) if live.generation is not None else None
        if worker is not None:
            worker.let_go(live)
        stop = live.stop
        outcome = stopped(stop) if stop else failed(failure or _UNHELD, None)
        ending = self.decide(live, *outcome)
        future = self._writer.submit(end_running_job(live.new, ending, stop))
        future.add_done_callback(partial(self._unheld, live, ending, stop, failure))

    def _unheld(
        self,
        live: LiveJob,
        ending: Ending,
        stop: StopReason | None,
        failure: Failure | None,
        future: OutcomeFuture,
    ) -> None:
        """A stop that was counted on may have been answered with a full disk: decide again."""
        void = not future.cancelled() and not future.exception()
        void = void and isinstance(future.result(), Void)
        if not void or live.stop is stop:
            self._ended(live, ending, future)
            return
        live.state = JobState.RUNNING
        if failure is None:
            self.on_reprieved(live)
        else:
            self.end_unheld(live, failure)

    def _write(self, live: LiveJob, ending: Ending, operation: Operation) -> None:
        future = self._writer.submit(operation)
        future.add_done_callback(partial(self._ended, live, ending))

    def _ended(self, live: LiveJob, ending: Ending, future: OutcomeFuture) -> None:
        stored = False
        if future.cancelled() or future.exception() is not None:
            _log.error("ending_failed", job=live.id, error=str(future.exception()))
        elif not isinstance(future.result(), Committed):
            _log.error("ending_void", job=live.id, state=ending.state)
        else:
            stored = True
        self.show(live, ending, stored=stored)


def recorded(new: NewJob, ending: Ending) -> Ending:
    """The ending as it may be stored: of an attached job not a word of its request is."""
    failure = ending.failure
    if new.durability is not Durability.ATTACHED or failure is None or failure.code not in QUOTING:
        return ending
    unquoted = msgspec.structs.replace(failure, message=QUOTING[failure.code])
    return msgspec.structs.replace(ending, failure=unquoted)


_UNHELD = Failure(code="internal_error", message="The job was held by no worker.")


def _nothing(_live: LiveJob) -> None:
    """Nobody is wired yet."""
