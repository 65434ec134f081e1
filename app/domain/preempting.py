"""Which running job gives its row up for one of a higher class. Pure.

A row is taken back in the middle of its answer and goes on later from where it stood, so what it
costs is computing its context again. It is asked at most once at a time, not before the attempt
has made ``FIRST_TOKENS``, and a job not more than ``PREEMPTIONS_MAX`` times.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from app.domain.job import JobClass
from shared.ids import JobId

FIRST_TOKENS: Final = 32
"""Tokens that every attempt may make undisturbed, so that each one gets on."""

PREEMPTIONS_MAX: Final = 3


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A running job. ``tokens`` are those of this attempt, ``context`` what must be computed again
    when it goes on; ``leaving`` when it was asked to stop or to give way already; ``kept`` when its
    class has waited too long to lose it."""

    job: JobId
    job_class: JobClass
    tokens: int
    context: int
    preemptions: int = 0
    leaving: bool = False
    kept: bool = False


def may_give_way(row: Row, job_class: JobClass) -> bool:
    """Whether this row may be taken for a job of that class."""
    return (
        row.job_class.rank > job_class.rank
        and row.tokens >= FIRST_TOKENS
        and row.preemptions < PREEMPTIONS_MAX
        and not row.leaving
        and not row.kept
    )


def choose(rows: Iterable[Row], job_class: JobClass) -> JobId | None:
    """The job that gives way to one of this class: of the lowest class, then with the least to
    compute again, then the youngest. None when no row may be taken."""
    rows = [row for row in rows if may_give_way(row, job_class)]
    if not rows:
        return None
    lowest = max(row.job_class.rank for row in rows)
    cheapest = min(row.context for row in rows if row.job_class.rank == lowest)
    return max(row.job for row in rows if row.job_class.rank == lowest and row.context == cheapest)
