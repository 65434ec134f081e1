"""Schedules as they are asked for, and as they are told."""

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.domain.cadence import CRON_CHARS_MAX
from app.http.native.schema import JobSubmission

NAME_CHARS_MAX: Final = 64
NAME: Final = r"^(?!sched_)[A-Za-z0-9][A-Za-z0-9_.-]*(?!\n)$"
EVERY_S_MAX: Final = 31_536_000
ZONE_CHARS_MAX: Final = 64

Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=NAME)]
CronText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=CRON_CHARS_MAX,
        description="Minute, hour, day, month, weekday: `30 6 * * MON-FRI`.",
    ),
]
Interval = Annotated[
    float,
    Meta(ge=1, le=EVERY_S_MAX, description="Seconds from one due to the next."),
]
Zone = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=ZONE_CHARS_MAX,
        description="The IANA time zone that `cron` is read in; `UTC` if nothing is said.",
    ),
]
Catching = Annotated[
    Literal["one", "none"],
    Meta(
        description="Of dues that were missed, as while the server was down: the latest fires, or "
        "none does. `one` if nothing is said."
    ),
]


class ScheduleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to be submitted again and again; one of ``cron`` and ``every_s`` says when."""

    name: Name
    job: JobSubmission
    cron: CronText | None = None
    every_s: Interval | None = None
    timezone: Zone | None = None
    catch_up: Catching | None = None
    paused: bool | None = None


class ScheduleChangeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be otherwise; what is left out or null stays."""

    job: JobSubmission | None = None
    cron: CronText | None = None
    every_s: Interval | None = None
    timezone: Zone | None = None
    catch_up: Catching | None = None
    paused: bool | None = None


class ScheduledMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn of the conversation."""

    role: str
    content: str
    name: str | None = None


class ScheduledBody(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation and how it is continued."""

    messages: list[ScheduledMessage]
    max_tokens: int | None
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    stop: list[str]


class ScheduledJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job that is submitted at each due."""

    kind: str
    model: str
    class_: str = msgspec.field(name="class")
    priority: int
    tags: dict[str, str]
    deadline_s: float | None
    attempt_timeout_s: float | None
    max_attempts: int
    seed: int | None
    body: ScheduledBody


class ScheduleTrouble(msgspec.Struct, frozen=True):
    """Why a due could not be fired yet; it is tried again."""

    code: str
    message: str


class ScheduleObject(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule. ``next_due`` is null while it is paused; ``last_due`` is the latest that fired,
    ``last_job`` what it submitted, while that is kept, and ``fired`` how many did. ``job`` is left
    out in lists."""

    id: str
    object: Literal["schedule"] = "schedule"
    name: str
    tenant: str
    state: str
    cron: str | None
    every_s: float | None
    timezone: str
    catch_up: str
    next_due: datetime | None
    last_due: datetime | None
    last_job: str | None
    fired: int
    trouble: ScheduleTrouble | None
    created_at: datetime
    updated_at: datetime
    job: ScheduledJob | UnsetType = UNSET


class ScheduleList(msgspec.Struct, frozen=True, kw_only=True):
    """All schedules of a tenant, by name."""

    object: Literal["list"] = "list"
    data: list[ScheduleObject]


class ScheduleDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that is gone."""

    id: str
    object: Literal["schedule.deleted"] = "schedule.deleted"
    name: str
    deleted: Literal[True] = True
