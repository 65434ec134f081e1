"""Time, from outside: services are given a clock, so that tests and simulations can own it."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one for people and rows, one for waiting."""

    def now(self) -> datetime:
        """Aware UTC; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        ...


class SystemClock:
    """The machine's."""

    def now(self) -> datetime:
        """Aware UTC; may jump."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that only ever grow."""
        return time.monotonic()
