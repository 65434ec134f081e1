"""The gate of a worker generation: whether it is given work. One table.

    loading ─▶ serving ◀─▶ rebuilding
       │          │            │
       └──────────┴─▶ stopping │          every state ─▶ failed
                               └─▶ failed

Only ``serving`` admits. What arrives late is named in the table and changes nothing: a load that
ends after a stop has begun does not open the gate again, a reply that says well does not bring
back what has failed, and a rebuild that takes too long keeps the gate closed, since it may still
be going on. A stop is never taken back.

Every move is compare-and-set: the SQL that follows the table names the state it moves from.
"""

from enum import StrEnum
from typing import Final


class Gate(StrEnum):
    """Where a generation stands with new work."""

    LOADING = "loading"
    SERVING = "serving"
    REBUILDING = "rebuilding"
    STOPPING = "stopping"
    FAILED = "failed"

    @property
    def admits(self) -> bool:
        """Whether new work may be given to it."""
        return self is Gate.SERVING


class GateEvent(StrEnum):
    """What moves a gate."""

    LOADED = "loaded"
    STOP = "stop"
    FAIL = "fail"
    REBUILD = "rebuild"
    REBUILT = "rebuilt"
    """The rebuild was answered: done, refused or rolled back."""
    REBUILD_UNSENT = "rebuild_unsent"
    """It was never sent, so no answer will come."""
    REBUILD_OVERDUE = "rebuild_overdue"


TRANSITIONS: Final[dict[Gate, dict[GateEvent, Gate]]] = {
    Gate.LOADING: {
        GateEvent.LOADED: Gate.SERVING,
        GateEvent.STOP: Gate.STOPPING,
        GateEvent.FAIL: Gate.FAILED,
    },
    Gate.SERVING: {
        GateEvent.LOADED: Gate.SERVING,
        GateEvent.STOP: Gate.STOPPING,
        GateEvent.FAIL: Gate.FAILED,
        GateEvent.REBUILD: Gate.REBUILDING,
    },
    Gate.REBUILDING: {
        GateEvent.REBUILT: Gate.SERVING,
        GateEvent.REBUILD_UNSENT: Gate.SERVING,
        GateEvent.REBUILD_OVERDUE: Gate.REBUILDING,
        GateEvent.FAIL: Gate.FAILED,
    },
    Gate.STOPPING: {
        GateEvent.LOADED: Gate.STOPPING,
        GateEvent.STOP: Gate.STOPPING,
        GateEvent.FAIL: Gate.FAILED,
    },
    Gate.FAILED: {
        GateEvent.LOADED: Gate.FAILED,
        GateEvent.STOP: Gate.FAILED,
        GateEvent.FAIL: Gate.FAILED,
        GateEvent.REBUILT: Gate.FAILED,
        GateEvent.REBUILD_UNSENT: Gate.FAILED,
        GateEvent.REBUILD_OVERDUE: Gate.FAILED,
    },
}


class GateRefused(Exception):
    """This cannot be asked of a gate in this state; the state is unchanged."""

    def __init__(self, gate: Gate, event: GateEvent) -> None:
        super().__init__(f"a worker that is {gate} cannot {event}")
        self.gate = gate
        self.event = event


class GateMoved(Exception):
    """Somebody else has moved the gate since it was looked at."""

    def __init__(self, expected: Gate, found: Gate) -> None:
        super().__init__(f"the gate was {expected} and is {found}")


def next_gate(gate: Gate, event: GateEvent, expected: Gate | None = None) -> Gate:
    """The state after ``event``; with ``expected`` only if the gate is still there.

    Raises:
        GateMoved: it is not.
        GateRefused: the table has no such move.
    """
    if expected is not None and gate is not expected:
        raise GateMoved(expected, gate)
    try:
        return TRANSITIONS[gate][event]
    except KeyError:
        raise GateRefused(gate, event) from None


def sources(event: GateEvent, to: Gate) -> tuple[Gate, ...]:
    """The states from which ``event`` leads to another one, ``to``: what a compare-and-set in SQL
    compares with."""
    return tuple(
        gate for gate, moves in TRANSITIONS.items() if gate is not to and moves.get(event) is to
    )
