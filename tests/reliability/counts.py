"""How much a suite of the proof does: its count, seeds and time, and the line that repeats a seed.

Small unless told otherwise. ``--large`` and ``--tenth`` (of the large count) say so on the command
line of ``pytest tests/reliability``, ``RELIABILITY_SCALE`` (small, tenth, large) anywhere.
``RELIABILITY_SEED`` runs one seed only: the line that repeats a failure sets it.
``RELIABILITY_FIRST`` is the first seed of a campaign (0), so that two campaigns may differ.

A suite asks for the fixture ``campaign`` (``conftest.py``)::

    def test_...(campaign: NewCampaign) -> None:
        campaign(small=300, large=100_000, unit="seeds").run(one_seed)
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

SCALE_VARIABLE: Final = "RELIABILITY_SCALE"
SEED_VARIABLE: Final = "RELIABILITY_SEED"
FIRST_VARIABLE: Final = "RELIABILITY_FIRST"
SHRINK_VARIABLE: Final = "RELIABILITY_SHRINK"
"""``0``: a failing example is told as it was found, which is quicker."""
TENTH: Final = 10


class Scale(StrEnum):
    """How long a run may take: minutes, an hour or so, days."""

    SMALL = "small"
    TENTH = "tenth"
    LARGE = "large"


def scale() -> Scale:
    """What this run was asked for.

    Raises:
        ValueError: ``RELIABILITY_SCALE`` is none of the three.
    """
    return Scale(os.environ.get(SCALE_VARIABLE) or Scale.SMALL)


def count_of(small: int, large: int) -> int:
    """How often at this run's scale; a tenth of ``large`` is never less than ``small``."""
    match scale():
        case Scale.SMALL:
            return small
        case Scale.TENTH:
            return max(small, large // TENTH)
        case Scale.LARGE:
            return large


@dataclass
class Campaign:
    """One suite's run: ``run`` it by seeds, or take ``count`` and say what was ``done``.

    ``node`` is the test's address, which the line that repeats a seed names.
    """

    node: str
    unit: str
    count: int
    done: int = 0
    began: float = field(default_factory=time.monotonic)

    def run(self, one: Callable[[int], object]) -> None:
        """Do this for each seed; what fails is told how it is repeated."""
        for seed in self.seeds():
            try:
                one(seed)
            except BaseException as error:
                error.add_note(self.line(seed))
                raise
            self.done += 1

    def seeds(self) -> range:
        """The seeds of this run: one, where one is asked for."""
        alone = os.environ.get(SEED_VARIABLE)
        if alone:
            return range(int(alone), int(alone) + 1)
        first = int(os.environ.get(FIRST_VARIABLE) or 0)
        return range(first, first + self.count)

    @property
    def alone(self) -> bool:
        """Whether one seed is repeated: what is asserted of all seeds together does not hold."""
        return bool(os.environ.get(SEED_VARIABLE))

    def line(self, seed: int) -> str:
        """The command that runs this seed alone."""
        return f"{SEED_VARIABLE}={seed} .venv/bin/python -m pytest '{self.node}' repeats it"

    def told(self) -> str:
        """Its count and its time, for the end of the run."""
        seconds = time.monotonic() - self.began
        return f"{self.node.rpartition('/')[2]}: {self.done} {self.unit} in {seconds:.1f} s"


class NewCampaign(Protocol):
    """Makes the campaign of a test."""

    def __call__(self, *, small: int, large: int, unit: str) -> Campaign: ...
