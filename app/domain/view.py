"""A job as it is told to people: its row, what it has said so far, and its place in the queue."""

from datetime import datetime

import msgspec

from app.domain.job import Durability, JobClass, JobState, OnFailure, StopReason, Usage
from shared.failures import Failure
from shared.ids import JobId, ScheduleId
from shared.messages import ItemKind


class OutputItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a choice's output. ``text`` is the answer, the reasoning or a call's arguments,
    as far as they were shown; ``closed`` when nothing follows."""

    ordinal: int
    kind: ItemKind
    name: str | None
    text: str
    closed: bool


class ChoiceView(msgspec.Struct, frozen=True, kw_only=True):
    """One choice's output so far."""

    choice: int
    items: tuple[OutputItem, ...]
    finish_reason: str | None


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """The job. ``events`` is the number its next event will have; ``position`` how many jobs go
    before it, None when it does not wait. ``after`` are the jobs that it waits for, and how each
    of them ended. Times are aware UTC."""

    id: JobId
    kind: str
    surface: str
    model: str
    tenant: str
    durability: Durability
    job_class: JobClass
    priority: int
    state: JobState
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
    stop_reason: StopReason | None
    retry_of: JobId | None
    finish_reason: str | None
    failure: Failure | None
    usage: Usage
    events: int
    tags: dict[str, str]
    seed: int
    position: int | None
    after: dict[JobId, JobState | None] = {}
    on_failure: OnFailure = OnFailure.FAIL
    schedule: ScheduleId | None = None
    output: tuple[ChoiceView, ...] = ()


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs, newest first; output is left out."""

    jobs: tuple[JobView, ...]
    has_more: bool


class LoadingView(msgspec.Struct, frozen=True):
    """How far a worker has come with loading."""

    stage: str
    done: int
    total: int


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """One worker. ``gate`` says whether it is given work, ``rows`` are the jobs it can run at once,
    ``running`` those that it said it runs, ``held`` those that were claimed for it and have not
    ended."""

    generation: str
    model: str
    state: str
    gate: str
    pid: int | None
    rows: int | None
    running: int | None
    held: int
    loading: LoadingView | None


class RestartView(msgspec.Struct, frozen=True, kw_only=True):
    """What the deaths of a model's workers allow: up to ``limit`` within ``window_s``, then a try
    in ``next_try_s``. ``reason`` is what the last one died of."""

    model: str
    deaths: int
    limit: int
    window_s: float
    exhausted: bool
    next_try_s: float | None
    reason: str | None


class DrainView(msgspec.Struct, frozen=True, kw_only=True):
    """A drain: ``finished + given_back + cancelled`` grow to ``in_flight``, which is its proof."""

    id: str
    mode: str
    scope: str
    state: str
    started_at: datetime
    ended_at: datetime | None
    timeout_s: float
    in_flight: int
    finished: int
    given_back: int
    cancelled: int
    reason: str | None = None
