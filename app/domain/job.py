"""A job: one accepted request, from submission to its one ending.

Life over time. Submission commits a row as ``available`` (or ``scheduled`` for later, or while it
waits for other jobs, or ``running`` at once where a row of a worker is free). The dispatcher claims
an available job for a generation: ``running``, ``attempt`` + 1, and the command to run it is
written in the same transaction. The attempt's first terminal event ends the job or sends it back.
After a crash of the worker its generation is declared lost and its running jobs go back or, when
attached and past saving, end (``services/rescue.py``); after a crash of the parent the next one
puts in order what its boot finds (``services/boot.py``).

``attempt`` is the fence: a message or write that names a lower one changes nothing.
"""

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from shared.failures import Failure
from shared.ids import GenerationId, JobId, ScheduleId


class JobState(StrEnum):
    """Where a job stands; the last three are final."""

    SCHEDULED = "scheduled"
    AVAILABLE = "available"
    RUNNING = "running"
    RETRYABLE = "retryable"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether nothing about the job's ending will ever change."""
        return self in FINAL_STATES


FINAL_STATES: Final = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


class Durability(StrEnum):
    """What survives what: ``attached`` ends with its connection or its parent, ``stored`` with its
    connection only, ``durable`` with neither."""

    ATTACHED = "attached"
    STORED = "stored"
    DURABLE = "durable"


class JobClass(StrEnum):
    """Dispatch order between jobs of one model: interactive first, batch last."""

    INTERACTIVE = "interactive"
    BACKGROUND = "background"
    BATCH = "batch"

    @property
    def rank(self) -> int:
        """0 for the class that goes first."""
        return _RANKS[self]


_RANKS: Final = {JobClass.INTERACTIVE: 0, JobClass.BACKGROUND: 1, JobClass.BATCH: 2}


class StopReason(StrEnum):
    """Why a job that has not ended must end; the first writer wins."""

    CANCEL = "cancel"
    DEADLINE = "deadline"
    PARENT_LOST = "parent_lost"


class OnFailure(StrEnum):
    """What a job does when one that it waits for fails or is cancelled: it fails, or runs."""

    FAIL = "fail"
    RUN = "run"


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tokens of a job: the prompt of its first attempt, and every completion token that was newly
    delivered over all attempts. ``cached_tokens`` are part of ``prompt_tokens``, and
    ``reasoning_tokens`` of ``completion_tokens``."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as submitted: everything that is fixed before its first attempt.

    ``request`` is the encoded body; None for attached jobs, whose prompt never touches the disk.
    ``after`` are the jobs that it waits for (``dependencies``), ``schedule`` is what submitted it.
    Times are aware UTC.
    """

    id: JobId
    kind: str
    durability: Durability
    job_class: JobClass
    priority: int
    surface: str
    tenant: str
    model: str
    created_at: datetime
    scheduled_at: datetime
    deadline_at: datetime
    seed: int
    max_attempts: int = 1
    attempt_timeout_s: float | None = None
    tags: dict[str, str] = {}
    retry_of: JobId | None = None
    keep_s: float | None = None
    after: tuple[JobId, ...] = ()
    on_failure: OnFailure = OnFailure.FAIL
    schedule: ScheduleId | None = None
    settings: bytes = b""
    request: bytes | None = None
    render_version: int = 1


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A job taken by a generation: attempt numbers start at 1."""

    job: JobId
    attempt: int
    generation: GenerationId
    claimed_at: datetime


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended: written once, with its report, in one transaction.

    ``complete`` is False when ``usage`` is only a lower bound because a process died before it
    could say how far it got. ``started_at`` is when a worker first accepted the job, if one did.
    """

    job: JobId
    attempt: int
    state: JobState
    finish_reason: str | None
    failure: Failure | None
    usage: Usage
    finalized_at: datetime
    started_at: datetime | None = None
    complete: bool = True
