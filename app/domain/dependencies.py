"""Jobs that wait for others: what their ends mean for the one that waits.

A job may name jobs that exist already, so there is no circle. It is ``scheduled`` until each of
them has ended: completed, or in any way where ``on_failure`` is ``run``. Where it is ``fail``, the
first one that failed or was cancelled fails it too, at once, and so on along a chain.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeAlias

from app.domain.job import JobState, OnFailure
from shared.failures import Failure
from shared.ids import JobId

AFTER_MAX: Final = 64
"""Jobs that one job may wait for."""

SUCCESSORS_MAX: Final = 1_000
"""Jobs that may wait for one job: its ending moves them all in its own transaction."""

Outcomes: TypeAlias = Mapping[JobId, JobState | None]
"""How each predecessor ended; None: it has not yet."""


class Verdict(Enum):
    """What a job that has not failed by its predecessors does."""

    WAIT = auto()
    RUN = auto()


def judge(outcomes: Outcomes, on_failure: OnFailure) -> Verdict | Failure:
    """Whether a job with these predecessors waits, may run, or has failed by one of them."""
    if on_failure is OnFailure.FAIL:
        for job, outcome in outcomes.items():
            if outcome not in (None, JobState.COMPLETED):
                return _failed_by(job, outcome)
    return Verdict.WAIT if None in outcomes.values() else Verdict.RUN


def _failed_by(job: JobId, outcome: JobState | None) -> Failure:
    return Failure(
        code="dependency_failed",
        message=f"It was to run after {job}, which ended {outcome}.",
    )
