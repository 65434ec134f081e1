"""Receipts as they are asked for, and as they are told.

The paths and the words are those that supervisors of such engines know: snake case where a stop is
prepared, camel case in the list of receipts.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from app.domain.receipts import Rank
from app.http.accounting.ports import Receipt

DRAIN_S_DEFAULT: Final = 5.0
ABORT_S_DEFAULT: Final = 10.0
"""Longer than the longest step: a chunk of a prompt cannot be interrupted."""

WAIT_S_MAX: Final = 600
RECEIPTS_MAX: Final = 1_000
ID_CHARS_MAX: Final = 200
REVISION_MAX: Final = 2**31

Id = Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX, pattern=r"^[A-Za-z0-9._-]+(?!\n)$")]
Revision = Annotated[int, Meta(ge=1, le=REVISION_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=WAIT_S_MAX)]


class StopRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which worker is to stop, and how long its work may take to come to rest."""

    worker: Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)] | None = None
    drain_timeout_s: Seconds | None = None
    abort_timeout_s: Seconds | None = None
    force: bool | None = None


class StoppedObject(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that takes no more work, with what it has done: totals since its start, to be set
    and never added. ``drain_complete`` is False when they are a lower bound."""

    instance_id: str
    model_id: str
    prompt_tokens_total: int
    completion_tokens_total: int
    requests_total: int
    uptime_s: float
    drain_complete: bool
    receipt_id: str
    revision: int
    rank: str
    reason: str
    detail: str | None


class ReceiptObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A receipt. A higher revision replaces what a lower one said; ``created_at`` is in
    milliseconds since 1970."""

    receipt_id: str
    revision: int
    rank: str
    created_at: int
    instance_id: str
    model_id: str
    prompt_tokens_total: int
    completion_tokens_total: int
    requests_total: int
    uptime_s: int
    drain_complete: bool
    degraded: bool
    best_effort: bool
    reason: str
    detail: str | None


class PendingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Receipts that were not acknowledged, oldest first."""

    receipts: list[ReceiptObject]


class AckedReceipt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receipt that was booked."""

    id: Id
    revision: Revision | None = None


class AccountingAck(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """Receipts that were booked: a list, or one alone."""

    receipts: Annotated[list[AckedReceipt], Meta(min_length=1, max_length=RECEIPTS_MAX)] | None = (
        None
    )
    receipt_id: Id | None = None
    revision: Revision | None = None


class AckedObject(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one: `acked`, `already`, `stale` (a newer revision is pending), `unknown`."""

    id: str
    revision: int
    state: str


class AccountingAcked(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all of them."""

    receipts: list[AckedObject]


class AccountingAckedOne(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of the one."""

    acked: bool
    already: bool
    stale: bool
    receipt_id: str
    revision: int


def stopped_object(receipt: Receipt) -> StoppedObject | None:
    """The worker that was stopped; None when its receipt can no longer be read."""
    report = receipt.report
    if report is None:
        return None
    return StoppedObject(
        instance_id=receipt.generation,
        model_id=report.model,
        prompt_tokens_total=report.usage.prompt_tokens,
        completion_tokens_total=report.usage.completion_tokens,
        requests_total=report.jobs,
        uptime_s=_uptime_s(receipt),
        drain_complete=report.complete,
        receipt_id=receipt.id,
        revision=receipt.revision,
        rank=receipt.rank.name.lower(),
        reason=report.reason,
        detail=report.detail,
    )


def receipt_object(receipt: Receipt) -> ReceiptObject | None:
    """One receipt; None when it can no longer be read: it holds up no other."""
    report = receipt.report
    if report is None:
        return None
    return ReceiptObject(
        receipt_id=receipt.id,
        revision=receipt.revision,
        rank=receipt.rank.name.lower(),
        created_at=int(report.ended_at.timestamp() * 1000),
        instance_id=receipt.generation,
        model_id=report.model,
        prompt_tokens_total=report.usage.prompt_tokens,
        completion_tokens_total=report.usage.completion_tokens,
        requests_total=report.jobs,
        uptime_s=int(_uptime_s(receipt)),
        drain_complete=receipt.rank is Rank.SEALED,
        degraded=not report.complete,
        best_effort=receipt.rank is Rank.SNAPSHOT,
        reason=report.reason,
        detail=report.detail,
    )


def _uptime_s(receipt: Receipt) -> float:
    report = receipt.report
    if report is None or report.ready_at is None:
        return 0.0
    return max(0.0, (report.ended_at - report.ready_at).total_seconds())
