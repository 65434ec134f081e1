"""From the bytes of a submission to drafts of jobs.

Everything that is wrong is named by its place: ``body.messages[2].role``, and in bulk
``jobs[17].body.messages[2].role``.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from app.domain.dependencies import AFTER_MAX
from app.domain.draft import IdempotencyKey, JobDraft
from app.domain.errors import InvalidRequest, StringTooLong
from app.domain.job import Durability, JobClass, OnFailure
from app.http.explaining import decode, within
from app.http.native.schema import (
    ATTEMPTS_MAX,
    BULK_MAX,
    DEFAULT_TENANT,
    DURATION_S_MAX,
    PRIORITY_MAX,
    TENANT_CHARS_MAX,
    BulkSubmission,
    ChatBody,
    JobSubmission,
)
from app.http.openai import decode as openai
from app.http.openai.conversation import conversation
from shared.ids import JobId
from shared.limits import SEED_MAX
from shared.requests import ChatRequest

SURFACE: Final = "native"

KEEP_UNSTORED_S: Final = 600.0
"""How long an ended job with ``store: false`` is kept."""

TAGS_MAX: Final = 16
TAG_KEY_CHARS_MAX: Final = 64
TAG_VALUE_CHARS_MAX: Final = 512

YEAR_MIN: Final = 2000
YEAR_MAX: Final = 2199

_DURATION: Final = f"a number of seconds above 0 and up to {DURATION_S_MAX}"
_IN_CHAT: Final = (
    "messages",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "stop",
)

EXPECTED: Final = {
    **{f"body.{name}": openai.EXPECTED[name] for name in _IN_CHAT},
    "body": "an object",
    "body.seed": "a 64-bit integer",
    "body.store": "a boolean",
    "kind": "'chat'",
    "model": openai.EXPECTED["model"],
    "class": "one of interactive, background, batch",
    "priority": f"an integer from -{PRIORITY_MAX} to {PRIORITY_MAX}",
    "tenant": f"1 to {TENANT_CHARS_MAX} letters, digits and any of _.@:/- behind the first",
    "tags": f"an object of up to {TAGS_MAX} strings, whose keys hold no colon",
    "deadline_s": _DURATION,
    "attempt_timeout_s": _DURATION,
    "max_attempts": f"an integer from 1 to {ATTEMPTS_MAX}",
    "scheduled_at": f"an RFC 3339 time with its offset, from {YEAR_MIN} to {YEAR_MAX}",
    "after": f"an array of up to {AFTER_MAX} ids of jobs",
    "after[]": "the id of a job: job_ and 32 hexadecimal digits",
    "on_failure": "fail or run",
    "seed": "a 64-bit integer",
    "jobs": f"an array of 1 to {BULK_MAX} jobs",
}
"""What each field may be, for the person who sent something else."""

_ONE: Final = msgspec.json.Decoder(JobSubmission)
_MANY: Final = msgspec.json.Decoder(BulkSubmission)
_IN_BULK: Final = re.compile(r"^jobs\[\d+\]\.")
_IN_AFTER: Final = re.compile(r"(?<=after\[)\d+(?=\]$)")


def decode_job(body: bytes) -> JobSubmission:
    """The job in a body.

    Raises:
        InvalidRequest: one of its kinds, naming the field where there is one.
    """
    return decode(_ONE, body, expected)


def decode_bulk(body: bytes) -> BulkSubmission:
    """The jobs in a body.

    Raises:
        InvalidRequest: one of its kinds, naming the job and the field.
    """
    return decode(_MANY, body, lambda path: expected(_IN_BULK.sub("", path)))


def expected(path: str) -> str | None:
    """What the field of a job at this place may be."""
    return EXPECTED.get(_IN_AFTER.sub("", path))


def to_draft(
    job: JobSubmission, draw_seed: Callable[[], int], idempotency: IdempotencyKey | None = None
) -> JobDraft:
    """The durable job that is asked for.

    ``draw_seed`` gives a seed below 2**64 for jobs that name none.

    Raises:
        InvalidRequest: when fields contradict each other or a list is out of its bounds.
    """
    return JobDraft(
        surface=SURFACE,
        model=job.model,
        request=_chat(job.body, _seed(job, draw_seed)),
        durability=Durability.DURABLE,
        job_class=JobClass(job.class_ or JobClass.BACKGROUND),
        priority=job.priority or 0,
        tenant=job.tenant or DEFAULT_TENANT,
        max_attempts=job.max_attempts or 1,
        deadline_s=job.deadline_s,
        attempt_timeout_s=job.attempt_timeout_s,
        scheduled_at=_due(job.scheduled_at),
        tags=_tags(job.tags or {}),
        keep_s=KEEP_UNSTORED_S if job.body.store is False else None,
        after=tuple(dict.fromkeys(JobId(before) for before in job.after or ())),
        on_failure=OnFailure(job.on_failure or OnFailure.FAIL),
        idempotency=idempotency,
    )


def _chat(body: ChatBody, seed: int) -> ChatRequest:
    with within("body"):
        return ChatRequest(
            messages=conversation(body.messages),
            sampling=openai.sampling_params(body, lambda: seed),
            max_tokens=None if body.max_tokens is None else min(body.max_tokens, openai.COUNT_MAX),
            stop=openai.stop_strings(body.stop),
        )


def _seed(job: JobSubmission, draw_seed: Callable[[], int]) -> int:
    named = {"seed": job.seed, "body.seed": job.body.seed}
    for param, value in named.items():
        if value is not None and value > SEED_MAX:
            raise InvalidRequest(f"Invalid '{param}': it must be {EXPECTED[param]}.", param=param)
    seeds = {value & SEED_MAX for value in named.values() if value is not None}
    if len(seeds) > 1:
        text = "'seed' and 'body.seed' are both given and differ; send one."
        raise InvalidRequest(text, param="seed")
    return seeds.pop() if seeds else draw_seed()


def _due(scheduled_at: datetime | None) -> datetime | None:
    if scheduled_at is None:
        return None
    if not YEAR_MIN <= scheduled_at.year <= YEAR_MAX:
        text = f"Invalid 'scheduled_at': it must be {EXPECTED['scheduled_at']}."
        raise InvalidRequest(text, param="scheduled_at")
    return scheduled_at.astimezone(UTC)


def _tags(tags: dict[str, str]) -> dict[str, str]:
    if len(tags) > TAGS_MAX or any(not key or ":" in key for key in tags):
        raise InvalidRequest(f"Invalid 'tags': it must be {EXPECTED['tags']}.", param="tags")
    if any(len(key) > TAG_KEY_CHARS_MAX for key in tags):
        text = f"A key of 'tags' is longer than {TAG_KEY_CHARS_MAX} characters."
        raise StringTooLong(text, param="tags")
    if any(len(value) > TAG_VALUE_CHARS_MAX for value in tags.values()):
        text = f"A value of 'tags' is longer than {TAG_VALUE_CHARS_MAX} characters."
        raise StringTooLong(text, param="tags")
    return tags
