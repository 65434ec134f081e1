"""Reports and consumers as they are asked for, and as they are told."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from app.domain.feed import Consumer, Cursor, FeedState, Report
from app.http.native.schema import TENANT, TENANT_CHARS_MAX

NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]*(?!\n)$"
NAME_CHARS_MAX: Final = 64
EPOCH_CHARS_MAX: Final = 64
SEQ_MAX: Final = 2**53 - 1

Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=NAME)]
Kind = Literal["job", "generation", "drain"]
Class = Literal["interactive", "background", "batch"]


class CursorObject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place in the feed: everything up to it."""

    epoch: Annotated[str, Meta(min_length=1, max_length=EPOCH_CHARS_MAX)]
    seq: Annotated[int, Meta(ge=0, le=SEQ_MAX)]

    def cursor(self) -> Cursor:
        """As the services know it."""
        return Cursor(self.epoch, self.seq)


class ConsumerRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A reader of the feed with a place that the server keeps."""

    name: Name
    from_: Literal["earliest", "latest"] = msgspec.field(name="from")
    kinds: Annotated[list[Kind], Meta(min_length=1)] | None = None
    classes: Annotated[list[Class], Meta(min_length=1)] | None = None
    tags: dict[str, str] | None = None
    include_attached: bool | None = None
    tenant: (
        Annotated[str, Meta(min_length=1, max_length=TENANT_CHARS_MAX, pattern=TENANT)] | None
    ) = None


class AckRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything up to ``through`` is done; with ``from`` only if the consumer stands there."""

    consumer: Name
    through: CursorObject
    from_: CursorObject | None = msgspec.field(default=None, name="from")


class ConsumerObject(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer. ``position`` is what it has acknowledged, ``end`` where the feed ends by now."""

    object: Literal["consumer"] = "consumer"
    name: str
    tenant: str | None
    state: str
    parked_reason: str | None
    kinds: Sequence[str]
    classes: Sequence[str]
    tags: dict[str, str]
    include_attached: bool
    position: CursorObject
    end: CursorObject
    created_at: datetime
    seen_at: datetime


class ConsumerList(msgspec.Struct, frozen=True, kw_only=True):
    """All consumers, by name."""

    object: Literal["list"] = "list"
    data: list[ConsumerObject]


class ConsumerDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """The consumer is gone."""

    object: Literal["consumer.deleted"] = "consumer.deleted"
    name: str
    deleted: bool = True


class ReportObject(msgspec.Struct, frozen=True, kw_only=True):
    """A report in its place. ``report`` is what it says; null when it was damaged on disk."""

    object: Literal["report"] = "report"
    id: str
    revision: int
    epoch: str
    seq: int
    kind: str
    subject: str
    outcome: str
    reason: str | None
    complete: bool
    created_at: datetime
    report: msgspec.Raw | None


class ReportPage(msgspec.Struct, frozen=True, kw_only=True):
    """Reports in order. ``next`` is what to acknowledge once these are done, and where the next
    page begins."""

    object: Literal["list"] = "list"
    data: list[ReportObject]
    next: CursorObject
    has_more: bool


def cursor_object(epoch: str, seq: int) -> CursorObject:
    """A place in the feed."""
    return CursorObject(epoch, seq)


def consumer_object(consumer: Consumer, epoch: str, state: FeedState) -> ConsumerObject:
    """One consumer."""
    selection = consumer.selection
    return ConsumerObject(
        name=consumer.name,
        tenant=selection.tenant,
        state=consumer.state,
        parked_reason=consumer.parked_reason,
        kinds=selection.kinds,
        classes=selection.classes,
        tags=dict(selection.tags),
        include_attached=selection.include_attached,
        position=CursorObject(epoch, consumer.acked),
        end=CursorObject(epoch, state.last),
        created_at=consumer.created_at,
        seen_at=consumer.seen_at,
    )


def report_object(report: Report, epoch: str) -> ReportObject:
    """One report."""
    return ReportObject(
        id=report.id,
        revision=report.revision,
        epoch=epoch,
        seq=report.seq,
        kind=report.kind,
        subject=report.subject,
        outcome=report.outcome,
        reason=report.reason,
        complete=report.complete,
        created_at=report.created_at,
        report=None if report.payload is None else msgspec.Raw(report.payload),
    )
