"""When a heartbeat is due, and for how long no parent was heard. No clock of its own."""

from typing import Final

TICK_INTERVALS_MAX: Final = 2
"""Heartbeat intervals that one tick may add to the silence: a process that was stopped and woken,
or a machine that slept, has not listened and so has not heard silence."""


class Pulse:
    """Both counts, moved by ``tick``."""

    __slots__ = ("_beat_at", "_grace_s", "_interval_s", "_silence_s", "_ticked_at", "due")

    def __init__(self, interval_s: float, grace_s: float, now: float) -> None:
        self._interval_s = interval_s
        self._grace_s = grace_s
        self._beat_at = now + interval_s
        self._ticked_at = now
        self._silence_s = 0.0
        self.due = False

    def tick(self, now: float) -> bool:
        """Let time pass; True when an interval has just ended, and a heartbeat with it is due."""
        self._silence_s += min(now - self._ticked_at, TICK_INTERVALS_MAX * self._interval_s)
        self._ticked_at = now
        if now < self._beat_at:
            return False
        self._beat_at = now + self._interval_s
        self.due = True
        return True

    def heard(self) -> None:
        """The parent is there."""
        self._silence_s = 0.0

    @property
    def orphaned(self) -> bool:
        """Whether the silence has outlasted the grace."""
        return self._silence_s > self._grace_s

    @property
    def wake_at(self) -> float:
        """When ``tick`` is to be called at the latest."""
        if self.orphaned:
            return self._beat_at
        grace_left_s = max(0.0, self._grace_s - self._silence_s)
        return min(self._beat_at, self._ticked_at + grace_left_s)
