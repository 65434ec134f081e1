"""The receipt of a worker generation: what it served, counted once, however often it is written.

A receipt has a rank by what it rests on. A better one replaces it under the same id with the next
revision; whoever reads it keys on (id, revision) and sets totals, never adds them. Totals are those
of the store: the sum over the generation's attempts. A sealed receipt is final.
"""

from enum import IntEnum, StrEnum
from typing import Final

import msgspec

from shared.totals import GenerationTotals


class Rank(IntEnum):
    """What a receipt rests on."""

    CRASH = 1
    """The process died, or counted as lost, before it could say what it had done."""
    SNAPSHOT = 2
    """It is alive, but its work is not known to be over, or its own count differs."""
    SEALED = 3
    """It was given no work any more, had none left, and its own count agrees."""


class Grounds(StrEnum):
    """Why a receipt has the rank it has."""

    STOPPED = "stopped"
    NEVER_READY = "never_ready"
    TOTALS_DIFFER = "totals_differ"
    FORCED = "forced"
    WORKER_LOST = "worker_lost"


OUTCOMES: Final = {Rank.CRASH: "crashed", Rank.SNAPSHOT: "snapshot", Rank.SEALED: "sealed"}


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the attempts of a generation; ``jobs`` counts those that were accepted."""

    jobs: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0

    def exceed(self, other: "Totals") -> bool:
        """Whether these hold all that ``other`` holds, and more."""
        pairs = list(
            zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        )
        return self != other and all(mine >= theirs for mine, theirs in pairs)

    def agree(self, own: GenerationTotals) -> bool:
        """Whether the worker has counted the same."""
        return (self.jobs, self.prompt_tokens, self.cached_tokens, self.completion_tokens) == (
            own.attempts,
            own.prompt_tokens,
            own.cached_tokens,
            own.completion_tokens,
        )


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The receipt that stands for a generation."""

    revision: int
    rank: Rank
    totals: Totals


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to say of a generation now. ``complete`` is False when the totals are only a
    lower bound of what the process has done."""

    rank: Rank
    grounds: Grounds
    totals: Totals
    complete: bool


def observe(
    asked: Rank, totals: Totals, *, ever_ready: bool, own: GenerationTotals | None = None
) -> Observed:
    """The best receipt that can be given where ``asked`` is aimed at.

    ``own`` is what the worker has counted itself; a process that was never ready was given no job,
    so that nothing is missing from its zeros.
    """
    if not ever_ready:
        rank = Rank.CRASH if asked is Rank.CRASH else Rank.SEALED
        return Observed(rank=rank, grounds=Grounds.NEVER_READY, totals=totals, complete=True)
    if asked is Rank.CRASH:
        grounds = Grounds.WORKER_LOST
    elif own is None:
        grounds = Grounds.FORCED if asked is Rank.SNAPSHOT else Grounds.TOTALS_DIFFER
        asked = Rank.SNAPSHOT
    elif totals.agree(own):
        grounds = Grounds.STOPPED
    else:
        asked, grounds = Rank.SNAPSHOT, Grounds.TOTALS_DIFFER
    return Observed(rank=asked, grounds=grounds, totals=totals, complete=asked is Rank.SEALED)


def revised(standing: Standing | None, seen: Observed) -> Standing | None:
    """The receipt that is to stand from now on; None when the one that does is as good."""
    if standing is None:
        return Standing(revision=1, rank=seen.rank, totals=seen.totals)
    if standing.rank is Rank.SEALED:
        return None
    if seen.rank <= standing.rank and not seen.totals.exceed(standing.totals):
        return None
    return Standing(
        revision=standing.revision + 1,
        rank=max(standing.rank, seen.rank),
        totals=seen.totals,
    )
