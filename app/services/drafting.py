"""What a draft is made into: the job that is recorded, and the one that lives in memory."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from app.domain.draft import IdempotencyKey, JobDraft
from app.domain.fairness import estimate
from app.domain.job import Durability, JobState, NewJob
from app.services.ledger import LiveJob
from app.services.recall import encode_request
from app.storage.idempotency import NewIdempotency, numbered
from app.streams.broadcast import Channel
from shared.ids import JobId

IDEMPOTENCY_S: Final = 24 * 3600.0
"""How long an idempotency key finds its job again."""


def live_job(draft: JobDraft, job: JobId, now: datetime, deadline_s: float) -> LiveJob:
    """The open job that a draft becomes at ``now``; ``deadline_s`` where it names none."""
    journaled = draft.durability is not Durability.ATTACHED
    size = request_bytes(draft)
    new = NewJob(
        id=job,
        kind="chat",
        durability=draft.durability,
        job_class=draft.job_class,
        priority=draft.priority,
        surface=draft.surface,
        tenant=draft.tenant,
        model=draft.model,
        created_at=now,
        scheduled_at=max(now, draft.scheduled_at or now),
        deadline_at=_deadline_at(draft, now, deadline_s),
        seed=draft.request.sampling.seed,
        max_attempts=draft.max_attempts,
        attempt_timeout_s=draft.attempt_timeout_s,
        tags=draft.tags,
        retry_of=draft.retry_of,
        keep_s=draft.keep_s,
        after=draft.after,
        on_failure=draft.on_failure,
        schedule=draft.due.schedule if draft.due else None,
        settings=_settings_of(draft, size),
        request=encode_request(draft.request) if journaled else None,
    )
    later = new.scheduled_at > now or bool(new.after)
    return LiveJob(
        new=new,
        request=draft.request,
        request_bytes=size,
        cost=estimate(size, draft.request.max_tokens),
        state=JobState.SCHEDULED if later else JobState.AVAILABLE,
        channel=Channel(bounded=journaled),
        followed=False,
    )


def _deadline_at(draft: JobDraft, now: datetime, deadline_s: float) -> datetime:
    """A deadline that was named counts from the submission; the usual one from when it may run."""
    if draft.deadline_s is not None:
        return now + timedelta(seconds=draft.deadline_s)
    return max(now, draft.scheduled_at or now) + timedelta(seconds=deadline_s)


def new_idempotency(draft: JobDraft, live: LiveJob, now: datetime) -> NewIdempotency | None:
    """The key that this job is to be found by, if the draft has one."""
    key = draft.idempotency
    if key is None:
        return None
    return NewIdempotency(
        tenant=draft.tenant,
        method=key.method,
        path=key.path,
        key=key.key,
        digest=key.digest,
        job=live.id,
        created_at=now,
        expires_at=now + timedelta(seconds=IDEMPOTENCY_S),
    )


def numbered_idempotency(
    key: IdempotencyKey, tenant: str, jobs: Sequence[JobId], now: datetime
) -> list[NewIdempotency]:
    """The rows by which jobs that are submitted together are to be found again."""
    return [
        NewIdempotency(
            tenant=tenant,
            method=key.method,
            path=key.path,
            key=numbered(key.key, number),
            digest=key.digest,
            job=job,
            created_at=now,
            expires_at=now + timedelta(seconds=IDEMPOTENCY_S),
        )
        for number, job in enumerate(jobs)
    ]


def request_bytes(draft: JobDraft) -> int:
    """About what the request's text takes in memory."""
    return sum(len(message.content) for message in draft.request.messages)


def _settings_of(draft: JobDraft, size: int) -> bytes:
    """Counts and settings of the request, without a word of its text."""
    request = draft.request
    return msgspec.json.encode(
        {
            "messages": len(request.messages),
            "chars": size,
            "max_tokens": request.max_tokens,
            "stops": len(request.stop),
            "sampling": msgspec.to_builtins(request.sampling),
        }
    )
