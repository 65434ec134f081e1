"""Changes of jobs that no worker's frame causes: submission, claim, stop, ending while it waits.

Each function returns the one operation for its change. Every statement is fenced by the state it
expects, so two changes that race cannot both happen: the later one is ``Void``.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from app.domain.draft import DueJob
from app.domain.job import Claim, Ending, JobState, NewJob, StopReason
from app.storage.claims import claim_params, claim_step
from app.storage.dependencies import OPEN, dependency_steps, predecessor_end_steps
from app.storage.encoding import checksum, micros, millis, seed_to_row
from app.storage.endings import (
    END_WAITING,
    AttemptOutcome,
    GiveBack,
    ending_params,
    give_back_steps,
    outcome_of,
    running_end_steps,
)
from app.storage.idempotency import NewIdempotency, idempotency_steps
from app.storage.operations import Operation, Params, Rank, Statement, Step, in_commit_order
from app.storage.padding import JOB_PAD_BYTES
from app.storage.reports import job_report
from app.storage.schedules import firing_steps
from app.storage.sql import insert
from shared.ids import CommandId, GenerationId, JobId

_INSERT: Final = Statement(
    "job.insert",
    Rank.JOB_INSERT,
    insert(
        "job",
        (
            "id",
            "kind",
            "durability",
            "class",
            "class_rank",
            "priority",
            "surface",
            "tenant",
            "model",
            "state",
            "attempt",
            "max_attempts",
            "created_at",
            "scheduled_at",
            "available_at",
            "claimed_at",
            "deadline_at",
            "attempt_timeout_ms",
            "keep_ms",
            "retry_of",
            "parent_job",
            "render_version",
            "seed",
            "events",
            "tags",
            "settings",
            "request_checksum",
            "pad",
            "request",
        ),
    ),
    together=True,
)

_CLAIM: Final = Statement(
    "job.claim",
    Rank.JOB_CLAIM,
    "UPDATE job SET state = 'running', attempt = :attempt, claimed_at = :claimed_at"
    " WHERE id = :job AND state = 'available' AND attempt = :attempt - 1 AND stop_reason IS NULL",
    together=True,
)

_DUE: Final = Statement(
    "job.due",
    Rank.JOB_DUE,
    "UPDATE job SET state = 'available', available_at = :now"  # noqa: S608 - our own constant
    f" WHERE id = :job AND state IN ('scheduled', 'retryable') AND NOT EXISTS ({OPEN})",
)

_STOP: Final = Statement(
    "job.stop",
    Rank.JOB_STOP,
    "UPDATE job SET stop_reason = :reason, stop_requested_at = :now"
    " WHERE id = :job AND stop_reason IS NULL AND finalized_at IS NULL",
)

_CANCEL_COMMAND: Final = Statement(
    "command.cancel",
    Rank.COMMAND_CANCEL,
    "INSERT INTO command (id, generation, job, attempt, kind, created_at, params)"
    " SELECT :id, :generation, :job, :attempt, 'cancel', :now, x'' FROM job"
    " WHERE job.id = :job AND job.state = 'running' AND job.attempt = :attempt"
    " AND EXISTS (SELECT 1 FROM attempt WHERE attempt.job = :job AND attempt.number = :attempt"
    " AND attempt.generation = :generation AND attempt.outcome IS NULL)",
    exact=False,
)
"""Adds nothing when the attempt is over already: there is nobody to tell."""

_ADOPT_STORED: Final = Statement(
    "job.adopt_stored",
    Rank.JOB_ADOPT,
    "UPDATE job SET durability = 'durable' WHERE durability = 'stored' AND finalized_at IS NULL",
    exact=False,
)


def insert_job(
    new: NewJob,
    claim: Claim | None = None,
    command: CommandId | None = None,
    *,
    idempotency: NewIdempotency | None = None,
    due: DueJob | None = None,
    parent_job: JobId | None = None,
    events: int = 1,
) -> Operation:
    """A submitted job; with a claim it is running from its first commit on.

    Void at ``attempt.insert`` when the claim's generation takes no jobs any more, and at
    ``idempotency.insert`` when the key names a job already: then the job was not inserted either.
    So too at ``dependency.insert`` when one of ``new.after`` is not there, and at ``firing.insert``
    or ``schedule.fire`` when the schedule has fired this ``due`` or moved on.
    It never shares a commit with an ending of one of those, so that what it notes of them holds.
    ``events`` is the next event number (``created`` took 0). Impatient: a full disk is answered,
    not waited out.
    """
    steps = [_insert_step(new, claim, parent_job, events)]
    subjects: tuple[str, ...] = (new.id,)
    if idempotency is not None:
        steps += idempotency_steps(idempotency)
        subjects = (new.id, idempotency.subject)
    if due is not None:
        steps += firing_steps(due, new.id, new.created_at)
        subjects = (*subjects, due.schedule)
    steps += dependency_steps(new)
    if claim is not None:
        steps.append(claim_step(claim_params(claim, command, micros(claim.claimed_at)), new.id))
    return Operation(
        name="insert_job",
        subjects=subjects,
        reads=(claim.generation, *new.after) if claim else new.after,
        steps=in_commit_order(steps),
        patient=False,
    )


def insert_jobs(jobs: Sequence[NewJob], keys: Sequence[NewIdempotency] = ()) -> Operation:
    """Jobs that are submitted together: all of them or none, each under its key if there are any.
    Void and impatient like ``insert_job``."""
    steps = [_insert_step(new) for new in jobs]
    for new in jobs:
        if new.after:
            steps += dependency_steps(new)
    for key in keys:
        steps += idempotency_steps(key)
    return Operation(
        name="insert_jobs",
        subjects=(*(new.id for new in jobs), *(key.subject for key in keys[:1])),
        reads=tuple({job for new in jobs for job in new.after}),
        steps=in_commit_order(steps),
        patient=False,
    )


def _insert_step(
    new: NewJob, claim: Claim | None = None, parent_job: JobId | None = None, events: int = 1
) -> Step:
    row: Params = {
        **_new_row(new),
        "state": _first_state(new, claim).value,
        "attempt": claim.attempt if claim else 0,
        "claimed_at": micros(claim.claimed_at) if claim else None,
        "parent_job": parent_job,
        "events": events,
    }
    return Step(_INSERT, row, new.id)


def claim_jobs(claims: Sequence[tuple[Claim, CommandId | None]]) -> Operation:
    """Available jobs go to their generations, all of them or none. Void when one is not available
    any more, has a stop pending or another attempt number, or when its generation takes no jobs any
    more."""
    steps: list[Step] = []
    moment, at = None, 0
    for claim, command in claims:
        if claim.claimed_at is not moment:  # claims of one look at the queue share theirs
            moment, at = claim.claimed_at, micros(claim.claimed_at)
        params = claim_params(claim, command, at)
        steps += (Step(_CLAIM, params, claim.job), claim_step(params, claim.job))
    return Operation(
        name="claim_jobs",
        subjects=tuple(claim.job for claim, _ in claims),
        reads=tuple({claim.generation for claim, _ in claims}),
        steps=in_commit_order(steps),
    )


def make_due(job: JobId, now: datetime) -> Operation:
    """A scheduled or retryable job may be claimed from now on."""
    step = Step(_DUE, {"job": job, "now": micros(now)}, job)
    return Operation(name="make_due", subjects=(job,), steps=(step,))


def request_stop(
    job: JobId,
    reason: StopReason,
    now: datetime,
    *,
    command: CommandId | None = None,
    generation: GenerationId | None = None,
    attempt: int = 0,
) -> Operation:
    """The job must end. The first reason stays; void when there is one already or it has ended.

    With ``command``, and that attempt still running on ``generation``, the ``Cancel`` for its
    worker is written with it. A cancel is impatient: a full disk is answered, not waited out.
    """
    at = micros(now)
    steps = [Step(_STOP, {"job": job, "reason": reason, "now": at}, job)]
    if command is not None and generation is not None:
        params: Params = {
            "id": command,
            "generation": generation,
            "job": job,
            "attempt": attempt,
            "now": at,
        }
        steps.append(Step(_CANCEL_COMMAND, params, job))
    return Operation(
        name="request_stop",
        subjects=(job,),
        reads=(generation,) if generation else (),
        steps=tuple(steps),
        patient=reason is not StopReason.CANCEL,
    )


def end_waiting_job(
    new: NewJob, ending: Ending, expected: JobState, *, extra: Sequence[Step] = ()
) -> Operation:
    """End a job that no worker holds, with its report. Void when it has left the expected state or
    was claimed. ``extra`` are steps of other aggregates that belong to the same change."""
    params = {**ending_params(ending), "expected": expected}
    return Operation(
        name="end_waiting_job",
        subjects=(ending.job,),
        steps=in_commit_order(
            [
                Step(END_WAITING, params, ending.job),
                *predecessor_end_steps(params, ending.job),
                *extra,
            ]
        ),
        reports=(job_report(new, ending),),
    )


def end_running_job(
    new: NewJob,
    ending: Ending,
    stop_reason: StopReason | None,
    outcome: AttemptOutcome | None = None,
) -> Operation:
    """End a running job that turned out to be held by no worker, with its report."""
    steps = running_end_steps(ending, stop_reason, outcome or outcome_of(ending))
    return Operation(
        name="end_running_job",
        subjects=(ending.job,),
        steps=in_commit_order(steps),
        reports=(job_report(new, ending),),
    )


def give_back(back: GiveBack) -> Operation:
    """Put a running job back that no worker holds any more. Void when a stop is pending (then it
    must end instead) or its attempt is not the current one."""
    return Operation(
        name="give_back", subjects=(back.job,), steps=in_commit_order(give_back_steps(back))
    )


def adopt_stored_jobs() -> Operation:
    """At boot: the connections of ``stored`` jobs are gone, so those that are open go on as
    ``durable``."""
    return Operation(name="adopt_stored_jobs", subjects=(), steps=(Step(_ADOPT_STORED, {}),))


def _first_state(new: NewJob, claim: Claim | None) -> JobState:
    if claim is not None:
        return JobState.RUNNING
    later = new.scheduled_at > new.created_at or bool(new.after)
    return JobState.SCHEDULED if later else JobState.AVAILABLE


def _pad(new: NewJob) -> bytes | None:
    return None if new.keep_s is None or new.request is None else bytes(JOB_PAD_BYTES)


def _new_row(new: NewJob) -> Params:
    scheduled_at = micros(new.scheduled_at)
    return {
        "id": new.id,
        "kind": new.kind,
        "durability": new.durability.value,
        "class": new.job_class.value,
        "class_rank": new.job_class.rank,
        "priority": new.priority,
        "surface": new.surface,
        "tenant": new.tenant,
        "model": new.model,
        "max_attempts": new.max_attempts,
        "created_at": micros(new.created_at),
        "scheduled_at": scheduled_at,
        "available_at": scheduled_at,
        "deadline_at": micros(new.deadline_at),
        "attempt_timeout_ms": millis(new.attempt_timeout_s),
        "keep_ms": millis(new.keep_s),
        "retry_of": new.retry_of,
        "tags": msgspec.json.encode(new.tags).decode(),
        "render_version": new.render_version,
        "seed": seed_to_row(new.seed),
        "settings": new.settings,
        "pad": _pad(new),
        "request": new.request,
        "request_checksum": None if new.request is None else checksum(new.request),
    }
