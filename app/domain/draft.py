"""What a door hands to submission: a validated request, and how it wants to be treated."""

from datetime import datetime
from typing import Final

import msgspec

from app.domain.job import Durability, JobClass, OnFailure
from shared.ids import JobId, ScheduleId
from shared.requests import JobRequest

DRAWN_SEED_BITS: Final = 53
"""Seeds that nobody named are small enough for readers of JSON that know no larger integers."""


class IdempotencyKey(msgspec.Struct, frozen=True, kw_only=True):
    """A caller's name for one request: the same key and body give the same job.

    ``digest`` is of the canonical body; ``path`` and ``method`` belong to the key's scope.
    """

    key: str
    method: str
    path: str
    digest: str


class DueJob(msgspec.Struct, frozen=True, kw_only=True):
    """A due of a schedule, which the job is submitted for: only if its next due is ``expected``,
    and then that becomes ``following``. Times are aware UTC."""

    schedule: ScheduleId
    expected: datetime
    due: datetime
    following: datetime


class JobDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is well-formed for its surface but not yet admitted.

    ``deadline_s`` counts from submission; None takes the setting's default. ``scheduled_at`` None
    is now. ``keep_s`` is how long the ended job is kept; None is the setting's retention.
    ``after`` are jobs that must have ended before; ``due`` is set where a schedule submits it.
    """

    surface: str
    model: str
    request: JobRequest
    durability: Durability = Durability.ATTACHED
    job_class: JobClass = JobClass.INTERACTIVE
    priority: int = 0
    tenant: str = "default"
    max_attempts: int = 1
    deadline_s: float | None = None
    attempt_timeout_s: float | None = None
    scheduled_at: datetime | None = None
    tags: dict[str, str] = {}
    retry_of: JobId | None = None
    keep_s: float | None = None
    after: tuple[JobId, ...] = ()
    on_failure: OnFailure = OnFailure.FAIL
    due: DueJob | None = None
    idempotency: IdempotencyKey | None = None
