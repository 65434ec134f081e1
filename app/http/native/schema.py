"""A job as it is asked for, and as it is told.

Optional fields of a request may be null, which means absent; unknown ones are refused. Times are
RFC 3339, in UTC where we write them.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.domain.dependencies import AFTER_MAX
from app.http.openai.schema import MODEL_CHARS_MAX, ContentPart, MessageParam, Tokens

BULK_MAX: Final = 1_000
PRIORITY_MAX: Final = 1_000
ATTEMPTS_MAX: Final = 100
DURATION_S_MAX: Final = 31_536_000
TENANT_CHARS_MAX: Final = 64
JOB_ID: Final = r"^job_[0-9a-f]{32}(?!\n)$"
TENANT: Final = r"^[A-Za-z0-9][A-Za-z0-9_.@:/-]*(?!\n)$"
DEFAULT_TENANT: Final = "default"

Model = Annotated[str, Meta(min_length=1, max_length=MODEL_CHARS_MAX)]
Seed = Annotated[int, Meta(ge=-(2**63), description="A 64-bit integer, signed or unsigned.")]
JobRef = Annotated[str, Meta(pattern=JOB_ID)]
Duration = Annotated[float, Meta(gt=0, le=DURATION_S_MAX)]


class JobPart(ContentPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of a message's content; only text has a place in a text model's prompt."""

    image_url: Any = None
    input_audio: Any = None
    file: Any = None


class JobMessage(MessageParam, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One turn of the conversation so far."""

    content: str | Sequence[JobPart] | None = None


class ChatBody(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A conversation to continue with one turn of the assistant."""

    messages: list[JobMessage]
    max_tokens: Tokens | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Seed | None = None
    stop: str | list[str] | None = None
    store: (
        Annotated[bool, Meta(description="False: deleted ten minutes after the job has ended.")]
        | None
    ) = None


class JobSubmission(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One job to be done, whatever happens to the process that does it."""

    kind: Literal["chat"]
    model: Model
    body: ChatBody
    class_: Literal["interactive", "background", "batch"] | None = msgspec.field(
        default=None, name="class"
    )
    priority: (
        Annotated[
            int,
            Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX, description="Higher goes first in its class."),
        ]
        | None
    ) = None
    tenant: (
        Annotated[str, Meta(min_length=1, max_length=TENANT_CHARS_MAX, pattern=TENANT)] | None
    ) = None
    tags: dict[str, str] | None = None
    deadline_s: (
        Annotated[
            Duration, Meta(description="Counts from submission. None: a week from `scheduled_at`.")
        ]
        | None
    ) = None
    attempt_timeout_s: Duration | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=ATTEMPTS_MAX)] | None = None
    scheduled_at: Annotated[datetime, Meta(tz=True)] | None = None
    after: (
        Annotated[
            list[JobRef],
            Meta(max_length=AFTER_MAX, description="Jobs that must have ended before."),
        ]
        | None
    ) = None
    on_failure: (
        Annotated[
            Literal["fail", "run"],
            Meta(description="What it does when one of `after` failed or was cancelled."),
        ]
        | None
    ) = None
    seed: Seed | None = None


class BulkSubmission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Many jobs, of which all are taken or none."""

    jobs: Annotated[list[JobSubmission], Meta(min_length=1, max_length=BULK_MAX)]


class QueuePlace(msgspec.Struct, frozen=True):
    """How many jobs go before this one."""

    position: int


class JobUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens counted: each once, over all attempts."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    total_tokens: int


class JobFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job failed."""

    code: str
    message: str
    retryable: bool
    param: str | None


class JobItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item of an answer; ``text`` is the answer, the reasoning or a call's arguments."""

    ordinal: int
    kind: Literal["message", "reasoning", "tool_call"]
    name: str | None
    text: str
    closed: bool


class JobChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, as far as it has come."""

    choice: int
    items: list[JobItem]
    finish_reason: str | None


class JobPredecessor(msgspec.Struct, frozen=True):
    """A job that another one waits for, and how it ended; null: it has not."""

    job: str
    outcome: str | None


class JobObject(msgspec.Struct, frozen=True, kw_only=True):
    """A job. ``events`` is the number that its next event will have; ``output`` is left out in
    lists. ``after`` are the jobs that it waits for, ``on_failure`` is null where there are none,
    and ``schedule`` is what submitted it."""

    id: str
    object: Literal["job"] = "job"
    kind: str
    surface: str
    model: str
    tenant: str
    durability: str
    class_: str = msgspec.field(name="class")
    priority: int
    state: str
    attempt: int
    failures: int
    max_attempts: int
    losses: int
    preemptions: int
    created_at: datetime
    scheduled_at: datetime
    deadline_at: datetime
    attempt_timeout_s: float | None
    started_at: datetime | None
    finalized_at: datetime | None
    stop_reason: str | None
    retry_of: str | None
    after: list[JobPredecessor]
    on_failure: str | None
    schedule: str | None
    finish_reason: str | None
    failure: JobFailure | None
    usage: JobUsage
    events: int
    tags: dict[str, str]
    seed: int
    queue: QueuePlace | None
    output: list[JobChoice] | UnsetType = UNSET


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs, newest first; ``last_id`` is the ``after`` of the next one."""

    object: Literal["list"] = "list"
    data: list[JobObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class BulkAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of the jobs that were taken, in the order they were sent in."""

    object: Literal["job.bulk"] = "job.bulk"
    ids: list[str]
