"""What operators ask for, and what they are told."""

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from app.domain.view import DrainView, RestartView, WorkerView
from app.http.ports import DrainMode

DRAIN_S_DEFAULT: Final = 30.0
DRAIN_S_MAX: Final = 86_400


class DrainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to let the server's work come to rest: to its end, to a point from which it goes on
    later, or by cancelling it."""

    mode: DrainMode
    timeout_s: Annotated[float, Meta(ge=0, le=DRAIN_S_MAX)] | None = None
    scope: str | None = None


class DrainObject(msgspec.Struct, frozen=True, kw_only=True):
    """A drain. ``finished + given_back + cancelled`` grow to ``in_flight``, which is its proof."""

    id: str
    object: Literal["drain"] = "drain"
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
    reason: str | None


class LoadingObject(msgspec.Struct, frozen=True):
    """How far a worker has come with loading its model."""

    stage: str
    done: int
    total: int


class WorkerObject(msgspec.Struct, frozen=True, kw_only=True):
    """One worker. `gate` says whether it is given work: only when `serving`. `rows` is how many
    jobs it can run at once, `running` how many it said it runs, `held` how many were given to it
    and have not ended."""

    generation: str
    model: str
    state: str
    gate: str
    pid: int | None
    rows: int | None
    running: int | None
    held: int
    loading: LoadingObject | None


class RestartObject(msgspec.Struct, frozen=True, kw_only=True):
    """What the deaths of a model's workers allow. After `limit` deaths within `window_s` the budget
    is exhausted, and one start is tried in `next_try_s`. `reason` is what the last one died of."""

    object: Literal["restart_budget"] = "restart_budget"
    model: str
    deaths: int
    limit: int
    window_s: float
    exhausted: bool
    next_try_s: float | None
    reason: str | None


class StatusObject(msgspec.Struct, frozen=True, kw_only=True):
    """How the server stands: whether it takes and hands out work, and why not."""

    object: Literal["status"] = "status"
    draining: bool
    ready: bool
    reason: str | None
    drain: DrainObject | None
    workers: list[WorkerObject]
    restarts: list[RestartObject]


def worker_object(worker: WorkerView) -> WorkerObject:
    """One worker."""
    return msgspec.convert(worker, WorkerObject, from_attributes=True)


def restart_object(restart: RestartView) -> RestartObject:
    """One model's budget."""
    return msgspec.convert(restart, RestartObject, from_attributes=True)


def drain_object(drain: DrainView) -> DrainObject:
    """One drain."""
    return DrainObject(
        id=drain.id,
        mode=drain.mode,
        scope=drain.scope,
        state=drain.state,
        started_at=drain.started_at,
        ended_at=drain.ended_at,
        timeout_s=drain.timeout_s,
        in_flight=drain.in_flight,
        finished=drain.finished,
        given_back=drain.given_back,
        cancelled=drain.cancelled,
        reason=drain.reason,
    )
