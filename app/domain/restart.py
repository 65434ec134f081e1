"""When a worker that died may be started again. Pure: the caller gives the time.

At most ``limit`` starts that ended in a death within ``window_s``; two early deaths in a row wait
``EARLY_DEATH_DELAY_S``. Once exhausted, one half-open try is allowed after 1, 2, 4 … 30 minutes,
so that a cured cause (a repaired file, freed memory) is found without a person.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

EARLY_DEATH_S: Final = 10.0
EARLY_DEATH_DELAY_S: Final = 5.0
HALF_OPEN_FIRST_S: Final = 60.0
HALF_OPEN_MAX_S: Final = 1_800.0


@dataclass(slots=True)
class RestartBudget:
    """Deaths of one model's workers, and what they allow.

    All times are monotonic seconds.
    """

    limit: int
    window_s: float
    _deaths: deque[float] = field(default_factory=deque[float])
    _early_in_a_row: int = 0
    _half_open_tries: int = 0
    _exhausted_at: float | None = None

    def died(self, now: float, lived_s: float) -> None:
        """A worker died that the parent did not stop."""
        self._early_in_a_row = self._early_in_a_row + 1 if lived_s < EARLY_DEATH_S else 0
        self._deaths.append(now)
        self._forget(now)
        if self._exhausted_at is not None:
            self._half_open_tries += 1
            self._exhausted_at = now
        elif len(self._deaths) >= self.limit:
            self._exhausted_at = now

    def ready(self) -> None:
        """A worker became ready: a half-open try succeeded, or nothing was wrong."""
        if self._exhausted_at is not None:
            self.reset()

    def reset(self) -> None:
        """Forget everything: an administrator says that the cause is cured."""
        self._deaths.clear()
        self._early_in_a_row = 0
        self._half_open_tries = 0
        self._exhausted_at = None

    def deaths(self, now: float) -> int:
        """How many count at the moment."""
        self._forget(now)
        return len(self._deaths)

    @property
    def exhausted(self) -> bool:
        """Whether only half-open tries are left."""
        return self._exhausted_at is not None

    def wait_s(self, now: float) -> float:
        """Seconds until the next start is allowed; 0 for now."""
        if self._exhausted_at is not None:
            pause = min(HALF_OPEN_FIRST_S * 2**self._half_open_tries, HALF_OPEN_MAX_S)
            return max(0.0, self._exhausted_at + pause - now)
        if self._early_in_a_row >= 2 and self._deaths:
            return max(0.0, self._deaths[-1] + EARLY_DEATH_DELAY_S - now)
        return 0.0

    def _forget(self, now: float) -> None:
        while self._deaths and self._deaths[0] <= now - self.window_s:
            self._deaths.popleft()
