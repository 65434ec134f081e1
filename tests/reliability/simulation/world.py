"""Virtual time, chance and the trace: what a simulation is made of.

Everything that happens is an act on one heap, in order of its time and then of its planning, so a
seed does the same each time. A parent's event loop is run between acts, one callback at a time.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Protocol

BEGINNING_S: Final = 1_000.0
"""The monotonic clock's value at the start."""


class ParentDied(SystemExit):
    """The parent process is gone from here on. A ``SystemExit``, since a loop contains all else."""


class Act:
    """Something planned, which may be called off."""

    __slots__ = ("do", "off")

    def __init__(self, do: Callable[[], object]) -> None:
        self.do = do
        self.off = False

    def cancel(self) -> None:
        """It does not happen."""
        self.off = True


class Running(Protocol):
    """A process whose callbacks run between acts."""

    def due(self) -> float | None:
        """When it next has something to do."""
        ...

    def run_one(self) -> None:
        """Do one thing that is due."""
        ...


class World:
    """One run.

    Attributes:
        now: monotonic seconds.
        acts: how many acts were done.
        events: acts and callbacks of parents.
        hits: what happened how often, by name: faults, transitions.
        parent: the parent that lives, if it is not stopped.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = BEGINNING_S
        self.acts = 0
        self.events = 0
        self.hits: Counter[str] = Counter()
        self.parent: Running | None = None
        self.on_parent_died: Callable[[], None] = lambda: None
        self.trace: list[str] | None = None
        self._heap: list[tuple[float, int, Act]] = []
        self._planned = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def chance(self, name: str) -> random.Random:
        """A stream of its own for each purpose: more draws here change nothing there."""
        return random.Random(f"{self.seed} {name}")

    def after(self, wait_s: float, do: Callable[[], object]) -> Act:
        """Plan this for later; 0 is behind everything that is due now."""
        act = Act(do)
        self._planned += 1
        heappush(self._heap, (self.now + wait_s, self._planned, act))
        return act

    def hit(self, what: str) -> None:
        """Count this, and note it."""
        self.hits[what] += 1
        self.note("hit", what)

    def note(self, *what: object) -> None:
        """A line of the trace: what two runs of a seed must have in common."""
        line = f"{self.now:.6f} {self.acts} {' '.join(map(str, what))}\n"
        self._digest.update(line.encode())
        if self.trace is not None:
            self.trace.append(line)

    @property
    def digest(self) -> str:
        """Of all lines so far."""
        return self._digest.hexdigest()

    def run(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Go on until this is true, at most so long by the virtual clock; whether it is."""
        end = self.now + limit_s
        while not until():
            if not self._step(end):
                return until()
        return True

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self.run(lambda: False, seconds)

    def _step(self, end: float) -> bool:
        try:
            return self._next(end)
        except ParentDied:
            self.on_parent_died()
            return True

    def _next(self, end: float) -> bool:
        due = self.parent.due() if self.parent is not None else None
        if due is not None and self.parent is not None and due <= self.now:
            self.events += 1
            self.parent.run_one()
            return True
        while self._heap and self._heap[0][2].off:
            heappop(self._heap)
        planned = self._heap[0][0] if self._heap else None
        times = [time for time in (due, planned) if time is not None]
        if not times or min(times) > end:
            self.now = end
            return False
        self.now = max(self.now, min(times))
        if planned is not None and planned <= self.now and (due is None or planned <= due):
            _, _, act = heappop(self._heap)
            self.acts += 1
            self.events += 1
            act.do()
        return True
