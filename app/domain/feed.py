"""The feed of reports: places in it, who reads it, and which reports they are shown.

A place is a cursor: the feed's epoch and a sequence. Sequences grow with every commit and are never
used twice; a restored backup begins a new epoch, so that a cursor of the time before is refused
instead of skipping or repeating reports.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal

import msgspec

from app.domain.job import Durability, JobClass
from shared.ids import ReportId

ReportKind = Literal["job", "generation", "drain"]
Start = Literal["earliest", "latest"]

KINDS: Final[tuple[ReportKind, ...]] = ("job", "generation", "drain")
CLASSES_DEFAULT: Final = (JobClass.INTERACTIVE, JobClass.BACKGROUND)


class Cursor(msgspec.Struct, frozen=True):
    """Everything up to this place; ``<epoch>:<seq>`` as text."""

    epoch: str
    seq: int

    def written(self) -> str:
        """As text."""
        return f"{self.epoch}:{self.seq}"


class About(msgspec.Struct, frozen=True):
    """What of a report decides who is shown it. Only jobs have any of it."""

    tenant: str | None = None
    job_class: str | None = msgspec.field(default=None, name="class")
    durability: str | None = None
    tags: Mapping[str, str] = {}


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which reports a reader is shown.

    Attributes:
        tenant: only jobs of this one; None is the operator, who also sees generations and drains.
        kinds: only these.
        classes: of jobs only these; lines of batches are asked for by name.
        tags: only jobs with all of these.
        include_attached: also jobs that were tied to a connection, whose client has its answer.
    """

    tenant: str | None = None
    kinds: tuple[ReportKind, ...] = KINDS
    classes: tuple[JobClass, ...] = CLASSES_DEFAULT
    tags: Mapping[str, str] = {}
    include_attached: bool = False

    def shows(self, kind: str, about: About) -> bool:
        """Whether this report is shown."""
        if kind not in self.kinds:
            return False
        if kind != "job":
            return self.tenant is None and not self.tags
        return (
            self.tenant in (None, about.tenant)
            and about.job_class in self.classes
            and (self.include_attached or about.durability != Durability.ATTACHED)
            and self.tags.items() <= about.tags.items()
        )

    def shows_unread(self, kind: str) -> bool:
        """Whether a report of which no more is known is shown: to the operator it is."""
        return self.tenant is None and not self.tags and kind in self.kinds


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A report in its place. ``payload`` is a JSON object, ``about`` what of it decides who is
    shown it; both are None when it is damaged on disk."""

    id: ReportId
    revision: int
    seq: int
    kind: str
    subject: str
    outcome: str
    reason: str | None
    complete: bool
    created_at: datetime
    payload: bytes | None
    about: About | None

    def shown_to(self, selection: Selection) -> bool:
        """Whether this reader is shown it."""
        if self.about is None:
            return selection.shows_unread(self.kind)
        return selection.shows(self.kind, self.about)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Reports in order. ``next`` is where reading goes on, behind what the reader is not shown;
    ``end`` says that nothing lay behind it."""

    reports: tuple[Report, ...]
    next: int
    end: bool


class ConsumerState(StrEnum):
    """Whether a consumer's place is kept."""

    LIVE = "live"
    PARKED = "parked"


class Consumer(msgspec.Struct, frozen=True, kw_only=True):
    """A reader with a place of its own.

    Attributes:
        acked: everything up to here is acknowledged.
        passed: nothing up to here concerns it any more: acknowledged, or not shown to it.
        parked_reason: why reports that it had not read may have gone.
    """

    name: str
    selection: Selection
    state: ConsumerState
    parked_reason: str | None
    acked: int
    passed: int
    created_at: datetime
    seen_at: datetime

    @property
    def internal(self) -> bool:
        """Whether it belongs to the server itself: nobody outside sees or names it."""
        return INTERNAL_MARK in self.name


INTERNAL_MARK: Final = ":"
"""In the name of a consumer that is the server's own."""


class FeedState(msgspec.Struct, frozen=True, kw_only=True):
    """The feed as a whole: the last place given, the last one deleted, what is kept in bytes."""

    last: int
    pruned: int
    bytes: int

    @property
    def lowest(self) -> int:
        """The lowest place that may still be read."""
        return self.pruned + 1
