"""Time, from outside: services are given a clock, so that tests and simulations can own it."""

import time
from datetime import UTC, datetime
from typing import Final, Protocol

TIMER_RESOLUTION_S: Final = 0.001
"""Timers of the loop count whole milliseconds, and may fire up to one early."""


def not_before(wait_s: float) -> float:
    """The delay for a timer that must not fire before ``wait_s`` have passed."""
    return max(0.0, wait_s) + TIMER_RESOLUTION_S


class Clock(Protocol):
    """Two clocks: one for people and rows, one for waiting."""

    def now(self) -> datetime:
        """Aware UTC; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        ...


def unix_ms(clock: Clock) -> int:
    """Unix time in milliseconds."""
    return int(clock.now().timestamp() * 1_000)


class SystemClock:
    """The machine's."""

    def now(self) -> datetime:
        """Aware UTC; may jump."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        return time.monotonic()
