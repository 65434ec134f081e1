"""Where the worker's session with its parent stands, and what moves it.

CONNECTING ──Hello sent──▶ GREETING ──Welcome──▶ SERVING
    ▲                          │                    │ Identify, or a word from a newer parent:
    └──────────────────────────┴────────────────────┘ whoever is there does not know us

any of them ──no parent heard for the grace──▶ ORPHANED (final)
"""

from enum import Enum, auto
from typing import Final


class State(Enum):
    """A state of the session."""

    CONNECTING = auto()
    """``Hello`` is due."""
    GREETING = auto()
    """``Hello`` went out; nothing but heartbeats is said until the ``Welcome``."""
    SERVING = auto()
    """Welcomed: commands are taken, frames go out."""
    ORPHANED = auto()
    """Nobody was heard for the grace: nothing is said or heard any more."""


class Happening(Enum):
    """What moves the session."""

    HELLO_SENT = auto()
    WELCOMED = auto()
    UNKNOWN = auto()
    SILENCE = auto()


TRANSITIONS: Final[dict[State, dict[Happening, State]]] = {
    State.CONNECTING: {
        Happening.HELLO_SENT: State.GREETING,
        Happening.WELCOMED: State.SERVING,
        Happening.UNKNOWN: State.CONNECTING,
        Happening.SILENCE: State.ORPHANED,
    },
    State.GREETING: {
        Happening.WELCOMED: State.SERVING,
        Happening.UNKNOWN: State.CONNECTING,
        Happening.SILENCE: State.ORPHANED,
    },
    State.SERVING: {
        Happening.WELCOMED: State.SERVING,
        Happening.UNKNOWN: State.CONNECTING,
        Happening.SILENCE: State.ORPHANED,
    },
    State.ORPHANED: {},
}


class IllegalTransition(Exception):
    """The session was moved in a way its table does not have: our own fault."""


def next_state(state: State, happening: Happening) -> State:
    """The state after ``happening``.

    Raises:
        IllegalTransition: when the table has no such move.
    """
    try:
        return TRANSITIONS[state][happening]
    except KeyError:
        raise IllegalTransition(f"{happening.name} in {state.name}") from None
