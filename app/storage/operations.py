"""A change to the store, as data.

An ``Operation`` is all-or-nothing: an ordered list of steps, each one fixed SQL statement with its
parameters, and the reports that become visible with them. The writer commits many operations in
one transaction and runs each kind of statement once for all of them, so within a commit statements
are ordered by ``Rank``, not by operation. That is only sound because operations in one commit never
touch the same subject; see ``Operation.conflicts``.

Nobody writes these by hand outside this package: ``jobs``, ``frames``, ``generations`` and
``reports`` hold the constructors.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from operator import attrgetter, itemgetter
from typing import Final, Self, TypeAlias

import msgspec

from app.domain.receipts import Rank as ReceiptRank
from shared.ids import GenerationId, ReportId
from shared.totals import GenerationTotals

Value: TypeAlias = str | int | float | bytes | None
Params: TypeAlias = Mapping[str, Value]
Values: TypeAlias = tuple[Value, ...]
Given: TypeAlias = Params | Values

PARAMETER: Final = re.compile(r":(\w+)")


class Rank(IntEnum):
    """The order of statements inside a commit: what a later one reads, an earlier one wrote."""

    META = 1
    GENERATION_INSERT = 10
    JOB_INSERT = 20
    JOB_ADOPT = 21
    JOB_CLAIM = 22
    JOB_DUE = 23
    JOB_STOP = 24
    IDEMPOTENCY_EXPIRE = 25
    IDEMPOTENCY_INSERT = 26
    DEPENDENCY_INSERT = 27
    JOB_RELEASE_NEW = 28
    FIRING_INSERT = 29
    ATTEMPT_INSERT = 30
    COMMAND_CANCEL = 41
    COMMAND_PREEMPT = 42
    COMMAND_SEAL = 43
    ATTEMPT_ACCEPT = 50
    ATTEMPT_PROGRESS = 51
    ATTEMPT_TOKENS = 52
    CHUNK_DROP = 59
    CHUNK_INSERT = 60
    JOB_ACCEPT = 70
    JOB_EVENTS = 71
    JOB_END_WAITING = 72
    JOB_END = 73
    JOB_GIVE_BACK = 74
    DEPENDENCY_END = 75
    JOB_RELEASE = 76
    ATTEMPT_END = 80
    COMMAND_ANSWER = 90
    COMMAND_DROP_JOB = 91
    COMMAND_DROP_GENERATION = 92
    GENERATION_READY = 100
    GENERATION_PROCESS = 105
    GENERATION_STOP = 101
    GENERATION_FRAME = 102
    GENERATION_LOST = 103
    GENERATION_GONE = 104
    RECEIPT_ACK = 110
    DRAIN_INSERT = 120
    DRAIN_PROGRESS = 121
    DRAIN_END = 122
    JOB_DELETE = 130
    IDEMPOTENCY_DELETE = 131
    FEED_PRUNE = 132
    REPORT_DELETE = 133
    REPORT_INSERT = 200
    CONSUMER_INSERT = 140
    CONSUMER_ACK = 141
    CONSUMER_SEEN = 142
    CONSUMER_PARK = 143
    CONSUMER_DELETE = 144
    SCHEDULE_INSERT = 150
    SCHEDULE_CHANGE = 151
    SCHEDULE_FIRE = 152
    SCHEDULE_DELETE = 153
    CONSUMER_REWIND = 160
    ENDPOINT_INSERT = 161
    ENDPOINT_UPDATE = 162
    EVENT_INSERT = 163
    DELIVERY_RECORD = 164
    DELIVERY_REPLAY = 165
    ENDPOINT_DELETE = 166
    DELIVERY_DELETE = 167
    EVENT_DELETE = 168


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """One fixed SQL text with named parameters.

    ``exact`` statements are fenced: each set of parameters must change exactly one row, else the
    operation is void. ``together`` says that sets of one commit never name the same row, so that
    they may be executed as one; ``placed`` that parameters come as values in the order of the text,
    without names. ``numbered`` is the same text with numbers in the place of names,
    and ``values`` makes of parameters what belongs there: names cost SQLite's binding a look each.
    """

    name: str
    rank: Rank
    sql: str
    exact: bool = True
    together: bool = False
    placed: bool = False
    numbered: str = field(init=False, repr=False)
    values: Callable[[Given], Values] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = list(dict.fromkeys(PARAMETER.findall(self.sql)))
        places = {name: f"?{place}" for place, name in enumerate(names, 1)}
        numbered = PARAMETER.sub(lambda found: places[found[1]], self.sql)
        object.__setattr__(self, "numbered", numbered)
        object.__setattr__(self, "values", _as_they_are if self.placed else _in_order(names))


def _in_order(names: Sequence[str]) -> Callable[[Params], Values]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda params: tuple(params[name] for name in names)


def _as_they_are(values: Values) -> Values:
    return values


class Step(msgspec.Struct, frozen=True, eq=False):
    """A statement with one set of parameters; ``subject`` is the id it is about."""

    statement: Statement
    params: Given
    subject: str = ""


class NewReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report to be inserted with the change it tells of; its place in the feed is given at the
    commit. ``payload`` is a JSON object. ``rank`` orders receipts of one generation."""

    id: ReportId
    kind: str
    subject: str
    outcome: str
    reason: str | None
    complete: bool
    payload: bytes
    created_at: datetime
    revision: int = 1
    rank: int = 0


class NewReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """A generation's receipt, to be written from what the store holds of it at the commit.

    ``own`` is what the worker has counted itself, ``detail`` a line for people.
    """

    generation: GenerationId
    asked: ReceiptRank
    now: datetime
    detail: str | None = None
    own: GenerationTotals | None = None


class Operation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One change, undone as a whole when any part of it is.

    Attributes:
        subjects: ids that this operation changes.
        receipts: receipts that are worked out, and become visible, with this change: only if there
            is none yet that is as good.
        reads: ids whose state its statements check; others may read them in the same commit.
        lazy: may wait up to ``WriterLimits.lazy_wait_s`` to ride along with others.
        patient: waits out a full disk; an impatient operation fails with ``StoreFull`` instead.
        forgets: deletes text that must be gone: the log that still holds it is emptied after the
            commit, as soon as no reader needs it.
    """

    name: str
    subjects: tuple[str, ...]
    steps: tuple[Step, ...]
    reports: tuple[NewReport, ...] = ()
    receipts: tuple[NewReceipt, ...] = ()
    reads: tuple[str, ...] = ()
    lazy: bool = False
    patient: bool = True
    forgets: bool = False

    @property
    def publishes(self) -> bool:
        """Whether reports may become visible with it."""
        return bool(self.reports or self.receipts)

    def build(self) -> Self:
        """Itself: it is all there is to write."""
        return self

    def __post_init__(self) -> None:
        ranks = list(map(_RANK, self.steps))
        if ranks != sorted(ranks):
            raise ValueError(f"steps of {self.name} are not in commit order")


@dataclass(frozen=True, slots=True)
class Committed:
    """The operation is on disk."""


@dataclass(frozen=True, slots=True)
class Void:
    """The operation changed nothing: somebody else had moved a row that it is fenced by.

    ``statement`` is the one that hit no row, ``subject`` the id it was about.
    """

    statement: str
    subject: str


_RANK: Final[Callable[[Step], Rank]] = attrgetter("statement.rank")

Outcome: TypeAlias = Committed | Void
COMMITTED = Committed()


def in_commit_order(steps: list[Step]) -> tuple[Step, ...]:
    """The steps by rank; those of one rank stay as they were added."""
    return tuple(sorted(steps, key=_RANK))
