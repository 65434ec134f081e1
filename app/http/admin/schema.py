"""What operators ask for, and what they are told."""

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from app.domain.view import DrainView
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


class StatusObject(msgspec.Struct, frozen=True, kw_only=True):
    """How the server stands: whether it takes and hands out work, and why not."""

    object: Literal["status"] = "status"
    draining: bool
    ready: bool
    reason: str | None
    drain: DrainObject | None


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
