"""What the end of an attempt means for its job, inside the frame that brings it.

The first terminal event decides. A pending stop decides over everything but finished work; a
failure of the job itself is tried again while it may; a pre-empted or stopped row goes back with
nothing counted. So does a job that its worker refused for now: it snoozes, each time longer.
"""

from typing import Literal

from app.domain.job import JobState
from app.domain.transitions import failed, finished, refused, stopped
from app.services.endings import Endings, recorded
from app.services.fold import Fold
from app.services.ledger import LiveJob
from app.services.returns import Returns
from app.storage.endings import AttemptOutcome
from shared.failures import Failure
from shared.messages import Refused

TIMED_OUT = Failure(
    code="attempt_timeout", message="The attempt took longer than it may.", retryable=True
)
INCONSISTENT = Failure(code="internal_error", message="The worker's output was inconsistent.")


class Attempts:
    """Adds the end of an attempt to a fold."""

    def __init__(self, endings: Endings, returns: Returns) -> None:
        self._endings = endings
        self._returns = returns

    def finished(self, fold: Fold, live: LiveJob) -> None:
        """Every choice is complete."""
        self._end(fold, live, finished(live.stop), "finished")

    def stopped(
        self, fold: Fold, live: LiveJob, reason: Literal["cancelled", "preempted", "exit"]
    ) -> None:
        """The row is gone because it was asked to go."""
        if live.stop is not None:
            self._end(fold, live, stopped(live.stop), "stopped")
        elif live.timed_out:
            self.failed(fold, live, TIMED_OUT)
        elif reason == "preempted":
            self._return(fold, live, "preempted", counted=live.giving_way)
        else:
            self._return(fold, live, "stopped", counted=False)

    def failed(self, fold: Fold, live: LiveJob, failure: Failure) -> None:
        """The attempt failed by the job's own fault or the engine's."""
        if live.stop is None and self._returns.can_retry(live, failure):
            self._return(fold, live, "failed", failure=failure)
        else:
            self._end(fold, live, failed(failure, live.stop), "failed")

    def refused(self, fold: Fold, live: LiveJob, event: Refused) -> None:
        """The worker did not start it."""
        if event.kind == "never" or live.stop is not None:
            self._end(fold, live, refused(event.failure, live.stop), "refused")
        else:
            self._return(fold, live, "refused", counted=False)

    def not_held(self, fold: Fold, live: LiveJob) -> None:
        """A cancel found nothing to stop: the row is no longer held by a worker."""
        if live.stop is not None:
            self._end(fold, live, stopped(live.stop), "stopped")

    def inconsistent(self, fold: Fold, live: LiveJob) -> None:
        """What the worker says of this job contradicts itself: it ends, alone."""
        self._end(fold, live, failed(INCONSISTENT, live.stop), "failed", complete=False)

    def _end(
        self,
        fold: Fold,
        live: LiveJob,
        outcome: tuple[JobState, Failure | None],
        attempt: AttemptOutcome,
        *,
        complete: bool = True,
    ) -> None:
        commanded = live.stop is not None or live.preempting
        ending = self._endings.decide(live, *outcome, complete=complete, now=fold.now)
        fold.worker.let_go(live)
        fold.operation.ended(
            live.new,
            recorded(live.new, ending),
            stop_reason=live.stop,
            outcome=attempt,
            followed=live.followed,
            commanded=commanded,
        )
        fold.endings.append((live, ending))
        fold.operation.lazy = False

    def _return(
        self,
        fold: Fold,
        live: LiveJob,
        outcome: AttemptOutcome,
        *,
        failure: Failure | None = None,
        counted: bool = True,
    ) -> None:
        fold.worker.let_go(live)
        back = self._returns.give_back(live, outcome, failure=failure, counted=counted)
        fold.operation.gave_back(back)
        fold.returned.append((live, back))
        fold.operation.lazy = False
