"""The job's state machine: one table, one function over it, and what an attempt's end means.

    scheduled ─▶ available ─▶ running ─▶ completed | failed | cancelled
                     ▲           │
                     ├───────────┤ lost generation, pre-emption, snooze, drain
                     └ retryable ◀ failure of the job itself, with attempts left

The SQL in ``storage`` checks the same rules again (states, attempt and stop reason in every WHERE,
CHECKs on the table), so two independent places must agree before a row changes.
"""

from enum import StrEnum
from typing import Final

from app.domain.job import JobState, StopReason
from shared.failures import Failure


class JobEvent(StrEnum):
    """What can happen to a job."""

    DUE = "due"
    CLAIM = "claim"
    FINISH = "finish"
    FAIL = "fail"
    RETRY = "retry"
    CANCEL = "cancel"
    EXPIRE = "expire"
    GIVE_BACK = "give_back"


TRANSITIONS: Final[dict[JobState, dict[JobEvent, JobState]]] = {
    JobState.SCHEDULED: {
        JobEvent.DUE: JobState.AVAILABLE,
        JobEvent.CANCEL: JobState.CANCELLED,
        JobEvent.EXPIRE: JobState.FAILED,
        JobEvent.FAIL: JobState.FAILED,
    },
    JobState.AVAILABLE: {
        JobEvent.CLAIM: JobState.RUNNING,
        JobEvent.CANCEL: JobState.CANCELLED,
        JobEvent.EXPIRE: JobState.FAILED,
        JobEvent.FAIL: JobState.FAILED,
    },
    JobState.RUNNING: {
        JobEvent.FINISH: JobState.COMPLETED,
        JobEvent.FAIL: JobState.FAILED,
        JobEvent.RETRY: JobState.RETRYABLE,
        JobEvent.CANCEL: JobState.CANCELLED,
        JobEvent.EXPIRE: JobState.FAILED,
        JobEvent.GIVE_BACK: JobState.AVAILABLE,
    },
    JobState.RETRYABLE: {
        JobEvent.DUE: JobState.AVAILABLE,
        JobEvent.CANCEL: JobState.CANCELLED,
        JobEvent.EXPIRE: JobState.FAILED,
        JobEvent.FAIL: JobState.FAILED,
    },
    JobState.COMPLETED: {},
    JobState.FAILED: {},
    JobState.CANCELLED: {},
}


class IllegalTransition(Exception):
    """Our own fault: this event cannot happen in this state."""

    def __init__(self, state: JobState, event: JobEvent) -> None:
        super().__init__(f"a job that is {state} cannot {event}")


def next_state(state: JobState, event: JobEvent) -> JobState:
    """The state after ``event``.

    Raises:
        IllegalTransition: when the table has no such move; the state is unchanged.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransition(state, event) from None


STOP_FAILURES: Final = {
    StopReason.DEADLINE: Failure(
        code="deadline_exceeded", message="The job's deadline passed before it ended."
    ),
    StopReason.PARENT_LOST: Failure(
        code="parent_lost",
        message="The server was stopped or drained while this request was attached to it.",
    ),
}


def stopped(reason: StopReason) -> tuple[JobState, Failure | None]:
    """How a job ends that was asked to stop and is no longer held by a worker."""
    if reason is StopReason.CANCEL:
        return JobState.CANCELLED, None
    return JobState.FAILED, STOP_FAILURES[reason]


def finished(stop: StopReason | None) -> tuple[JobState, Failure | None]:
    """How a job ends whose attempt finished: completed, also with a cancel or a deadline pending,
    since the work is done; only a lost parent's client is gone for good."""
    if stop is StopReason.PARENT_LOST:
        return stopped(stop)
    return JobState.COMPLETED, None


def failed(failure: Failure, stop: StopReason | None) -> tuple[JobState, Failure | None]:
    """How a job ends whose attempt failed without a retry left: a pending stop decides first."""
    if stop is not None:
        return stopped(stop)
    return JobState.FAILED, failure


def refused(failure: Failure, stop: StopReason | None) -> tuple[JobState, Failure | None]:
    """How a job ends that a worker will never run: with that worker's own reason, unless
    cancelled."""
    if stop is StopReason.CANCEL:
        return stopped(stop)
    return JobState.FAILED, failure
