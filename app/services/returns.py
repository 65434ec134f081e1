"""Jobs that go back: given back by a worker, taken back from a lost one, or to be tried again.

A job goes back with one operation, alone or inside a frame's or a loss's, and is queued (or its
back-off begins) after that is committed.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import structlog

from app.domain.job import JobState
from app.domain.retry import MAX_LOSSES, backoff_s
from app.services.clock import Clock, not_before
from app.services.endings import Endings
from app.services.ledger import Ledger, LiveJob
from app.services.relay import Relay
from app.storage.dependencies import released_at_once
from app.storage.endings import AttemptOutcome, GiveBack
from app.storage.jobs import make_due
from app.storage.operations import Committed
from app.storage.writer import OutcomeFuture, Writer
from shared.failures import Failure

_log = structlog.get_logger("returns")

NOBODY_WENT_ON = Failure(
    code="worker_crashed", message="The worker died and none could go on in time."
)
REFUSED_TOO_LONG = Failure(
    code="server_overloaded", message="The worker had no room for this request in time."
)
TOO_MANY_LOSSES = Failure(
    code="too_many_losses", message="Workers died too often while this job was running."
)


class Returns:
    """Decides how a job goes back, and brings it back when it is due.

    Args:
        draw: uniform in [0, 1).
        resume_wait_s: how long an attached job waits for a worker to go on with.
    """

    def __init__(
        self,
        ledger: Ledger,
        relay: Relay,
        endings: Endings,
        writer: Writer,
        clock: Clock,
        draw: Callable[[], float],
        resume_wait_s: float,
    ) -> None:
        self._ledger = ledger
        self._relay = relay
        self._endings = endings
        self._writer = writer
        self._clock = clock
        self._draw = draw
        self._resume_wait_s = resume_wait_s
        self.on_returned: list[Callable[[LiveJob, GiveBack], None]] = []

    def can_lose(self, live: LiveJob) -> bool:
        """Whether another loss is within the job's limit."""
        return live.losses + 1 < MAX_LOSSES

    def can_retry(self, live: LiveJob, failure: Failure) -> bool:
        """Whether the job may be tried again after this failure of its own."""
        return failure.retryable and live.failures + 1 < live.new.max_attempts

    def give_back(
        self,
        live: LiveJob,
        outcome: AttemptOutcome,
        *,
        failure: Failure | None = None,
        counted: bool = True,
    ) -> GiveBack:
        """The job's pending state moves back; to be written by the caller."""
        attempt, now, wait_s = live.attempt, self._clock.now(), 0.0
        if outcome == "refused":
            live.snoozes += 1
            wait_s = backoff_s(live.snoozes, self._draw())
        elif outcome == "failed":
            live.failures += 1
            wait_s = backoff_s(live.failures, self._draw())
        elif outcome == "lost" and counted:
            live.losses += 1
        elif outcome == "preempted" and counted:
            live.preemptions += 1
        live.record.attempt_over()
        retryable = outcome == "failed"
        live.let_go(JobState.RETRYABLE if retryable else JobState.AVAILABLE)
        return GiveBack(
            job=live.id,
            attempt=attempt,
            outcome=outcome,
            now=now,
            due_at=now + timedelta(seconds=wait_s),
            failure=failure,
            counted=counted,
            held_deaths=live.record.deaths,
            held_alone=live.record.alone,
        )

    def returned(self, live: LiveJob, back: GiveBack) -> None:
        """The give-back is committed: queue the job, now or when it is due."""
        for told in self.on_returned:
            told(live, back)
        if live.state is JobState.RETRYABLE:
            self.wait_until_due(live, (back.due_at - back.now).total_seconds())
        elif live.state is JobState.AVAILABLE:
            self.snooze(live, (back.due_at - back.now).total_seconds())
        if live.attached and not live.state.final:
            loop = asyncio.get_running_loop()
            loop.call_later(self._resume_wait_s, self._resume_overdue, live, live.attempt)

    def snooze(self, live: LiveJob, wait_s: float) -> None:
        """An available job is queued after ``wait_s``, or now. Nothing of it is counted; in the
        store it is available from its ``available_at`` on, which the next start sees."""
        if wait_s > 0:
            loop = asyncio.get_running_loop()
            loop.call_later(not_before(wait_s), self._queue_again, live)
        else:
            self._queue_again(live)

    def wait_until_due(self, live: LiveJob, wait_s: float) -> None:
        """A scheduled or retryable job becomes available after ``wait_s``."""
        loop = asyncio.get_running_loop()
        loop.call_later(not_before(wait_s), self._due, live)

    def released(self, live: LiveJob) -> None:
        """Nothing holds a scheduled job back any more but its own time, if it has one. Without one
        it was made available by the commit that brought this."""
        if released_at_once(live.new):
            live.state = JobState.AVAILABLE
            self._queue_again(live)
        elif live.due:
            self._due(live)

    def _due(self, live: LiveJob) -> None:
        if live.state not in (JobState.SCHEDULED, JobState.RETRYABLE):
            return
        if live.awaits:
            live.due = True
            return
        live.state = JobState.AVAILABLE
        future = self._writer.submit(make_due(live.id, self._clock.now()))
        future.add_done_callback(partial(self._made_due, live))

    def _made_due(self, live: LiveJob, future: OutcomeFuture) -> None:
        if future.cancelled() or future.exception() is not None:
            _log.error("due_not_stored", job=live.id, error=str(future.exception()))
        elif isinstance(future.result(), Committed):
            self._queue_again(live)

    def _queue_again(self, live: LiveJob) -> None:
        if live.state is JobState.AVAILABLE:
            self._ledger.forget_request(live)
            self._relay.queue(live)

    def _resume_overdue(self, live: LiveJob, attempt: int) -> None:
        """An attached job's client waits no longer than this for a worker that goes on; tries that
        were refused in between give it no more time."""
        if live.attempt - live.snoozes > attempt or live.state is not JobState.AVAILABLE:
            return
        if self._relay.withdraw(live) or live.snoozes:
            failure = REFUSED_TOO_LONG if live.snoozes else NOBODY_WENT_ON
            self._endings.end_waiting(live, JobState.FAILED, failure)
