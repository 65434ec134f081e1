"""The life of a worker generation: one table. The row in the store follows it.

    starting ─▶ ready ─▶ stopping ─▶ gone
        └──────────┴─────────┴─▶ lost ─▶ gone

``lost`` is the parent's decision (dead, silent, broken protocol): from then on nothing that the
process says counts. ``gone`` means that its death was seen.
"""

from enum import StrEnum
from typing import Final


class WorkerState(StrEnum):
    """Where a generation stands."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    LOST = "lost"
    GONE = "gone"


class WorkerEvent(StrEnum):
    """What can happen to a generation."""

    READY = "ready"
    STOP = "stop"
    LOSE = "lose"
    DIE = "die"


TRANSITIONS: Final[dict[WorkerState, dict[WorkerEvent, WorkerState]]] = {
    WorkerState.STARTING: {
        WorkerEvent.READY: WorkerState.READY,
        WorkerEvent.STOP: WorkerState.STOPPING,
        WorkerEvent.LOSE: WorkerState.LOST,
    },
    WorkerState.READY: {
        WorkerEvent.STOP: WorkerState.STOPPING,
        WorkerEvent.LOSE: WorkerState.LOST,
    },
    WorkerState.STOPPING: {
        WorkerEvent.DIE: WorkerState.GONE,
        WorkerEvent.LOSE: WorkerState.LOST,
    },
    WorkerState.LOST: {WorkerEvent.DIE: WorkerState.GONE},
    WorkerState.GONE: {},
}


class IllegalWorkerTransition(Exception):
    """Our own fault: this event cannot happen in this state."""


def next_worker_state(state: WorkerState, event: WorkerEvent) -> WorkerState:
    """The state after ``event``.

    Raises:
        IllegalWorkerTransition: when the table has no such move.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalWorkerTransition(f"a worker that is {state} cannot {event}") from None
