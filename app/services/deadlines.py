"""Deadlines and time-outs, counted down on the monotonic clock from the moment a row is loaded.

So a clock that jumps ends nothing early. A job that waits ends at once; one that runs is stopped
like a cancelled one, and ends failed unless its work is done first. An attempt that takes too long
is asked back from its worker and counts as a failure of the job.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from app.domain.job import Ending, JobState, StopReason
from app.domain.transitions import stopped
from app.services.alarms import Alarms
from app.services.cancellation import Cancellation
from app.services.clock import Clock
from app.services.endings import Endings
from app.services.ledger import LiveJob
from app.services.preemption import Preemption
from app.services.relay import Relay
from app.services.starts import Starts
from shared.failures import Failure
from shared.ids import JobId


class Deadlines:
    """Watches over jobs from their insert to their end."""

    def __init__(
        self,
        relay: Relay,
        endings: Endings,
        cancellation: Cancellation,
        preemption: Preemption,
        starts: Starts,
        clock: Clock,
    ) -> None:
        self._relay = relay
        self._endings = endings
        self._cancellation = cancellation
        self._preemption = preemption
        self._starts = starts
        self._clock = clock
        self._alarms = Alarms()
        self._of_job = dict[JobId, list[int]]()
        endings.on_ended.append(self._ended)

    def __len__(self) -> int:
        return len(self._alarms)

    def watch(self, live: LiveJob) -> None:
        """Count this job's deadline down."""
        left_s = (live.new.deadline_at - self._clock.now()).total_seconds()
        self._set(live, left_s, partial(self._passed, live))

    def watch_attempt(self, live: LiveJob, begun_at: datetime | None = None) -> None:
        """Count down what the attempt may take that begins now, or had begun then."""
        timeout_s = live.new.attempt_timeout_s
        if timeout_s is None:
            return
        if begun_at is not None:
            timeout_s -= (self._clock.now() - begun_at).total_seconds()
        self._set(live, timeout_s, partial(self._attempt_overdue, live, live.attempt))

    def _set(self, live: LiveJob, wait_s: float, call: Callable[[], None]) -> None:
        self._of_job.setdefault(live.id, []).append(self._alarms.set(wait_s, call))

    def _ended(self, live: LiveJob, _ending: Ending) -> None:
        for number in self._of_job.pop(live.id, ()):
            self._alarms.cancel(number)

    def _attempt_overdue(self, live: LiveJob, attempt: int) -> None:
        if live.attempt == attempt and live.state is JobState.RUNNING and not live.timed_out:
            live.timed_out = True
            self._preemption.request(live)

    def _passed(self, live: LiveJob) -> None:
        if live.state.final or live.stop is not None:
            return
        if live.state is JobState.RUNNING:
            self._cancellation.request_nowait(live.id, StopReason.DEADLINE)
            return
        self._relay.withdraw(live)
        self._endings.end_waiting(live, *self._waited_in_vain(live))

    def _waited_in_vain(self, live: LiveJob) -> tuple[JobState, Failure | None]:
        """Nobody could ever run it, or it was merely too late."""
        model = live.new.model
        if live.awaits:
            return stopped(StopReason.DEADLINE)
        if live.attempt == 0 and not self._starts.served_since(model, live.new.created_at):
            failure = Failure(code="model_unavailable", message=self._starts.told(model))
            return JobState.FAILED, failure
        return stopped(StopReason.DEADLINE)
