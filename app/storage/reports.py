"""Reports: how a subject ended, told to the world once.

A report is inserted in the transaction of the ending it tells of. Its id is derived from the
subject and it has one revision, so a second one for the same job is refused by the primary key.
Only a generation's receipt may be replaced by a better one: the next revision, in a new place of
the feed, while the old row stays as a tombstone.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Self

import msgspec

from app.domain.job import Ending, NewJob, Usage
from app.storage.operations import NewReport
from shared.ids import report_id
from shared.totals import GenerationTotals


class ReportedFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job failed, with the code of the table of errors."""

    code: str
    message: str
    retryable: bool


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Aware UTC; ``started_at`` is when a worker first accepted the job, if one did."""

    created_at: datetime
    scheduled_at: datetime
    started_at: datetime | None
    finalized_at: datetime


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a job's report. ``complete`` is False when ``usage`` is a lower bound;
    ``schedule`` is what submitted it, if one did."""

    job: str
    outcome: str
    reason: str | None
    complete: bool
    usage: Usage
    timings: Timings
    attempts: int
    failure: ReportedFailure | None
    kind: str
    model: str
    job_class: str = msgspec.field(name="class")
    durability: str
    surface: str
    tenant: str
    tags: Mapping[str, str]
    schedule: str | None = None


class WorkerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker had counted itself when it was asked."""

    attempts: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @classmethod
    def of(cls, own: GenerationTotals) -> Self:
        """From its answer."""
        return cls(**msgspec.structs.asdict(own))


class GenerationReport(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a generation's receipt. ``usage`` and ``jobs`` are sums over its attempts,
    ``worker`` its own counts where it was asked; ``reason`` says what the receipt rests on."""

    generation: str
    outcome: str
    reason: str
    detail: str | None
    complete: bool
    usage: Usage
    worker: WorkerCounts | None
    model: str
    jobs: int
    created_at: datetime
    ready_at: datetime | None
    ended_at: datetime


def job_report(
    new: NewJob,
    ending: Ending,
) -> NewReport:
    """The one report of a job, from what it was submitted as and how it ended."""
    payload = JobReport(
        job=new.id,
        outcome=ending.state.value,
        reason=_reason(ending),
        complete=ending.complete,
        usage=ending.usage,
        timings=_timings(new, ending),
        attempts=ending.attempt,
        failure=_failure(ending),
        kind=new.kind,
        model=new.model,
        job_class=new.job_class,
        durability=new.durability,
        surface=new.surface,
        tenant=new.tenant,
        tags=new.tags,
        schedule=new.schedule,
    )
    return NewReport(
        id=report_id("job", new.id),
        kind="job",
        subject=new.id,
        outcome=payload.outcome,
        reason=payload.reason,
        complete=payload.complete,
        payload=msgspec.json.encode(payload),
        created_at=ending.finalized_at,
    )


def generation_report(payload: GenerationReport, *, revision: int = 1, rank: int = 0) -> NewReport:
    """A generation's receipt; a later revision replaces the ones before it."""
    return NewReport(
        id=report_id("generation", payload.generation),
        kind="generation",
        subject=payload.generation,
        outcome=payload.outcome,
        reason=payload.reason,
        complete=payload.complete,
        payload=msgspec.json.encode(payload),
        created_at=payload.ended_at,
        revision=revision,
        rank=rank,
    )


def _reason(ending: Ending) -> str | None:
    return ending.failure.code if ending.failure else ending.finish_reason


def _failure(ending: Ending) -> ReportedFailure | None:
    failure = ending.failure
    if failure is None:
        return None
    return ReportedFailure(code=failure.code, message=failure.message, retryable=failure.retryable)


def _timings(new: NewJob, ending: Ending) -> Timings:
    return Timings(
        created_at=new.created_at,
        scheduled_at=new.scheduled_at,
        started_at=ending.started_at,
        finalized_at=ending.finalized_at,
    )
