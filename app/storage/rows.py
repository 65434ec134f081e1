"""Rows as frozen structs: one struct and one function a table. Times are aware UTC."""

from datetime import datetime
from sqlite3 import Row
from typing import Final, TypeAlias

import msgspec

from app.domain.job import (
    Durability,
    JobClass,
    JobState,
    NewJob,
    OnFailure,
    StopReason,
    Usage,
)
from app.domain.worker_state import WorkerState
from app.storage.encoding import checksum, failure_from_row, moment, seconds, seed_from_row
from app.storage.errors import PayloadDamaged
from app.storage.frames import NewChunk
from shared.failures import Failure
from shared.ids import CommandId, GenerationId, JobId, ReportId


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stands. ``new`` is what was submitted, without the request: that is read on its
    own, since it may be large. ``after`` says how each job that it waits for has ended."""

    new: NewJob
    after: dict[JobId, JobState | None]
    state: JobState
    attempt: int
    failures: int
    losses: int
    preemptions: int
    held_deaths: int
    held_alone: bool
    available_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    finalized_at: datetime | None
    stop_reason: StopReason | None
    stop_requested_at: datetime | None
    retry_of: JobId | None
    parent_job: JobId | None
    finish_reason: str | None
    failure: Failure | None
    usage: Usage
    events: int
    prompt_digest: str | None
    fingerprint: str | None
    tags: dict[str, str]


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """One try at a job. ``choice_counts`` are the completion tokens delivered per choice,
    ``command`` is the number of its ``RunJob``: unanswered until the attempt is accepted or over.
    """

    job: JobId
    number: int
    generation: GenerationId
    claimed_at: datetime
    accepted_at: datetime | None
    ended_at: datetime | None
    prompt_tokens: int
    cached_tokens: int
    replayed_tokens: int
    delivered_tokens: int
    reasoning_tokens: int
    prefill_tokens: int
    choice_counts: dict[int, int]
    outcome: str | None
    failure: Failure | None
    command: CommandId | None


class GenerationRow(msgspec.Struct, frozen=True, kw_only=True):
    """One start of one worker process. ``usage`` and ``jobs`` sum over its attempts."""

    id: GenerationId
    model: str
    state: WorkerState
    gate: str
    pid: int | None
    pid_started: int | None
    last_seq: int
    parent_epoch: int
    usage: Usage
    jobs: int
    created_at: datetime
    ready_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None
    exit_signal: int | None
    exit_reason: str | None
    fingerprint: str | None
    log_path: str


class CommandRow(msgspec.Struct, frozen=True, kw_only=True):
    """A command that its worker has not answered yet."""

    id: CommandId
    generation: GenerationId
    job: JobId | None
    attempt: int | None
    kind: str
    created_at: datetime
    params: bytes


class ReportRow(msgspec.Struct, frozen=True, kw_only=True):
    """A report in its place in the feed. ``payload`` is a JSON object."""

    id: ReportId
    revision: int
    seq: int
    kind: str
    subject: str
    tombstone: bool
    rank: int
    outcome: str
    reason: str | None
    complete: bool
    created_at: datetime
    payload: bytes


def job_from(row: Row) -> JobRow:
    """A row of ``job``, any columns of the request left out."""
    after = _AFTER.decode(row["after"])
    return JobRow(
        new=_new_job(row, after),
        after={JobId(predecessor): outcome for predecessor, outcome, _ in after},
        state=JobState(row["state"]),
        attempt=row["attempt"],
        failures=row["failures"],
        losses=row["losses"],
        preemptions=row["preemptions"],
        held_deaths=row["held_deaths"],
        held_alone=bool(row["held_alone"]),
        available_at=moment(row["available_at"]),
        claimed_at=_moment(row["claimed_at"]),
        started_at=_moment(row["started_at"]),
        finalized_at=_moment(row["finalized_at"]),
        stop_reason=StopReason(row["stop_reason"]) if row["stop_reason"] else None,
        stop_requested_at=_moment(row["stop_requested_at"]),
        retry_of=row["retry_of"],
        parent_job=row["parent_job"],
        finish_reason=row["finish_reason"],
        failure=failure_from_row(row["failure"]),
        usage=_usage(row),
        events=row["events"],
        prompt_digest=row["prompt_digest"],
        fingerprint=row["fingerprint"],
        tags=msgspec.json.decode(row["tags"], type=dict[str, str]),
    )


def attempt_from(row: Row) -> AttemptRow:
    """A row of ``attempt``."""
    return AttemptRow(
        job=row["job"],
        number=row["number"],
        generation=row["generation"],
        claimed_at=moment(row["claimed_at"]),
        accepted_at=_moment(row["accepted_at"]),
        ended_at=_moment(row["ended_at"]),
        prompt_tokens=row["prompt_tokens"],
        cached_tokens=row["cached_tokens"],
        replayed_tokens=row["replayed_tokens"],
        delivered_tokens=row["delivered_tokens"],
        reasoning_tokens=row["reasoning_tokens"],
        prefill_tokens=row["prefill_tokens"],
        choice_counts=choice_counts_from(row["choice_counts"]),
        outcome=row["outcome"],
        failure=failure_from_row(row["failure"]),
        command=row["command"],
    )


def choice_counts_from(column: str) -> dict[int, int]:
    """Completion tokens per choice."""
    return msgspec.json.decode(column, type=dict[int, int])


def generation_from(row: Row) -> GenerationRow:
    """A row of ``generation``."""
    return GenerationRow(
        id=row["id"],
        model=row["model"],
        state=WorkerState(row["state"]),
        gate=row["gate"],
        pid=row["pid"],
        pid_started=row["pid_started"],
        last_seq=row["last_seq"],
        parent_epoch=row["parent_epoch"],
        usage=_usage(row),
        jobs=row["jobs"],
        created_at=moment(row["created_at"]),
        ready_at=_moment(row["ready_at"]),
        ended_at=_moment(row["ended_at"]),
        exit_code=row["exit_code"],
        exit_signal=row["exit_signal"],
        exit_reason=row["exit_reason"],
        fingerprint=row["fingerprint"],
        log_path=row["log_path"],
    )


def command_from(row: Row) -> CommandRow:
    """A row of ``command``."""
    return CommandRow(
        id=row["id"],
        generation=row["generation"],
        job=row["job"],
        attempt=row["attempt"],
        kind=row["kind"],
        created_at=moment(row["created_at"]),
        params=row["params"],
    )


def report_from(row: Row) -> ReportRow:
    """A row of ``report``.

    Raises:
        PayloadDamaged: the payload is not what was written.
    """
    if checksum(row["payload"]) != row["checksum"]:
        raise PayloadDamaged("report", row["id"])
    return ReportRow(
        id=row["id"],
        revision=row["revision"],
        seq=row["seq"],
        kind=row["kind"],
        subject=row["subject"],
        tombstone=bool(row["tombstone"]),
        rank=row["rank"],
        outcome=row["outcome"],
        reason=row["reason"],
        complete=bool(row["complete"]),
        created_at=moment(row["created_at"]),
        payload=row["payload"],
    )


def chunk_from(row: Row) -> NewChunk:
    """A row of ``chunk``.

    Raises:
        PayloadDamaged: the payloads are not what was written.
    """
    if checksum(row["tokens"], row["logprobs"], row["parts"]) != row["checksum"]:
        raise PayloadDamaged("chunk", f"{row['job']} {row['number']}")
    return NewChunk(**{name: row[name] for name in NewChunk.__struct_fields__})


_After: TypeAlias = list[tuple[str, JobState | None, OnFailure]]
_AFTER: Final = msgspec.json.Decoder(_After)


def _new_job(row: Row, after: _After) -> NewJob:
    return NewJob(
        id=row["id"],
        kind=row["kind"],
        durability=Durability(row["durability"]),
        job_class=JobClass(row["class"]),
        priority=row["priority"],
        surface=row["surface"],
        tenant=row["tenant"],
        model=row["model"],
        created_at=moment(row["created_at"]),
        scheduled_at=moment(row["scheduled_at"]),
        deadline_at=moment(row["deadline_at"]),
        seed=seed_from_row(row["seed"]),
        max_attempts=row["max_attempts"],
        attempt_timeout_s=seconds(row["attempt_timeout_ms"]),
        tags=msgspec.json.decode(row["tags"], type=dict[str, str]),
        retry_of=row["retry_of"],
        keep_s=seconds(row["keep_ms"]),
        after=tuple(JobId(predecessor) for predecessor, _, _ in after),
        on_failure=after[0][2] if after else OnFailure.FAIL,
        schedule=row["schedule"],
        settings=row["settings"],
        render_version=row["render_version"],
    )


def _usage(row: Row) -> Usage:
    return Usage(
        prompt_tokens=row["prompt_tokens"],
        cached_tokens=row["cached_tokens"],
        completion_tokens=row["completion_tokens"],
        reasoning_tokens=row["reasoning_tokens"],
    )


def _moment(stored: int | None) -> datetime | None:
    return None if stored is None else moment(stored)
