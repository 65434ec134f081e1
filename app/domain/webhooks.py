"""Webhooks: endpoints, the events that are sent to them, and how each delivery stands.

An event is a report in the words of OpenAI's webhooks. Its id is derived from the report's, and its
body is written down once, before anybody is sent it: every try, at every endpoint and by every
later version of this program, carries the same bytes.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from app.domain.feed import Report

ENDPOINTS_MAX: Final = 100
"""Webhook endpoints of one server."""

ASIDE_MAX: Final = 1_000
"""Events of one endpoint that wait for another try; with so many, no further one is begun."""

TRIES_KEPT: Final = 20
"""Tries of one delivery that are remembered in full, the latest ones."""

RESPONSES: Final = "responses"
"""The surface whose jobs have OpenAI's own event types."""

_JOB_TYPES: Final = ("job.completed", "job.failed", "job.cancelled")
_RESPONSE_TYPES: Final = (
    "response.completed",
    "response.failed",
    "response.cancelled",
    "response.incomplete",
)
EVENT_TYPES: Final = (
    *_RESPONSE_TYPES,
    *_JOB_TYPES,
    "generation.sealed",
    "generation.snapshot",
    "generation.crashed",
    "drain.completed",
    "drain.failed",
    "drain.cancelled",
)
"""What can be sent."""

PREFIX: Final = "evt_"
CONSUMER_PREFIX: Final = "webhook:"


class EndpointState(StrEnum):
    """Whether an endpoint is sent anything."""

    ENABLED = "enabled"
    DISABLED = "disabled"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where events are sent. Which reports it is shown, and up to where it has been, is kept by its
    consumer.

    Attributes:
        tenant: only this one's jobs; None is the operator's, who is sent everything.
        reason: why it is disabled.
        old_secret: signs beside ``secret`` until ``old_secret_until``.
    """

    id: str
    tenant: str | None
    name: str
    url: str
    state: EndpointState
    reason: str | None
    event_types: tuple[str, ...]
    secret: str
    old_secret: str | None
    old_secret_until: datetime | None
    created_at: datetime
    updated_at: datetime

    @property
    def consumer(self) -> str:
        """The name of its consumer."""
        return consumer_of(self.id)

    def secrets(self, now: datetime) -> tuple[str, ...]:
        """What a delivery is signed with at this time, the newest first."""
        old, until = self.old_secret, self.old_secret_until
        return (self.secret, old) if old and until and now < until else (self.secret,)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be otherwise from now on; None leaves it as it is."""

    name: str | None = None
    url: str | None = None
    event_types: tuple[str, ...] | None = None
    enabled: bool | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent. ``seq`` is the place of its report in the feed, ``body`` is JSON."""

    id: str
    seq: int
    type: str
    created_at: datetime
    body: bytes


class DeliveryState(StrEnum):
    """Where a delivery stands once it was tried."""

    WAITING = "waiting"
    """For its next try."""
    DELIVERED = "delivered"
    PARKED = "parked"
    """Given up, until somebody asks for it again."""


class Try(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One try: the answer's status, or what came instead of one."""

    at: datetime
    took_ms: int
    status: int | None = None
    error: str | None = None


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One event at one endpoint, since its first try.

    Attributes:
        tries: all that were made since it was begun, or was asked for again.
        next_at: the next one, while it waits.
        ended_at: when it was delivered or parked.
        log: the latest tries.
    """

    endpoint: str
    event: str
    seq: int
    type: str
    state: DeliveryState
    tries: int
    first_at: datetime
    next_at: datetime | None
    ended_at: datetime | None
    log: tuple[Try, ...] = ()


def consumer_of(endpoint: str) -> str:
    """The name of an endpoint's consumer."""
    return CONSUMER_PREFIX + endpoint


def event_id(report: Report) -> str:
    """Derived from the report's id. A revised receipt is another event."""
    suffix = "" if report.revision == 1 else f".r{report.revision}"
    return f"{PREFIX}{report.id}{suffix}"


def report_of(event: str) -> tuple[str, int] | None:
    """The id and the revision of the report behind an event; None when no event is called so."""
    if not event.startswith(PREFIX):
        return None
    report, dot, revision = event.removeprefix(PREFIX).partition(".r")
    if not dot:
        return report, 1
    return (report, int(revision)) if revision.isdecimal() and len(revision) < 10 else None


class _Content(msgspec.Struct, frozen=True):
    """What of a report's content decides the event's type."""

    surface: str | None = None


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's event. ``created_at`` is Unix seconds."""

    id: str
    object: str = "event"
    created_at: int
    type: str
    data: "_Data"


class _Data(msgspec.Struct, frozen=True, kw_only=True):
    """What the event is about: ``id`` as its own door knows it, and the report. Nothing here says
    where it stands in the feed: told again after a backup was put back, it is the same."""

    id: str
    report: "_Told"


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    revision: int
    kind: str
    subject: str
    outcome: str
    reason: str | None
    complete: bool
    report: msgspec.Raw | None


def event_of(report: Report) -> Event:
    """The event that tells of a report. Pure: the same report gives the same bytes."""
    surface, name = _surface(report), event_id(report)
    told = _Told(
        id=report.id,
        revision=report.revision,
        kind=report.kind,
        subject=report.subject,
        outcome=report.outcome,
        reason=report.reason,
        complete=report.complete,
        report=None if report.payload is None else msgspec.Raw(report.payload),
    )
    body = _Body(
        id=name,
        created_at=int(report.created_at.timestamp()),
        type=type_of(report),
        data=_Data(id=_public_id(report, surface), report=told),
    )
    return Event(
        id=name,
        seq=report.seq,
        type=body.type,
        created_at=report.created_at,
        body=msgspec.json.encode(body),
    )


def type_of(report: Report) -> str:
    """What an event is called: by what ended, and how."""
    if _surface(report) == RESPONSES:
        cut = report.outcome == "completed" and report.reason == "length"
        return "response.incomplete" if cut else f"response.{report.outcome}"
    return f"{report.kind}.{report.outcome}"


def _surface(report: Report) -> str | None:
    if report.payload is None:
        return None
    return msgspec.json.decode(report.payload, type=_Content).surface


def sample(name: str, type_: str, now: datetime) -> bytes:
    """An event of this type about nothing, to try an endpoint with."""
    body: Mapping[str, object] = {
        "id": name,
        "object": "event",
        "created_at": int(now.timestamp()),
        "type": type_,
        "data": {"id": f"{_SAMPLE_PREFIXES[type_.partition('.')[0]]}sample", "sample": True},
    }
    return msgspec.json.encode(body)


_SAMPLE_PREFIXES: Final = {
    "response": "resp_",
    "job": "job_",
    "generation": "gen_",
    "drain": "drain_",
}


def _public_id(report: Report, surface: str | None) -> str:
    if surface == RESPONSES:
        return f"resp_{report.subject.rpartition('_')[2]}"
    return report.subject
