"""Webhook endpoints and deliveries as they are asked for, and as they are told.

Fields that OpenAI's clients know have their names and forms; the others are ours.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from app.domain.feed import FeedState
from app.domain.webhooks import Delivery, EndpointState, Try
from app.http.native.schema import TENANT, TENANT_CHARS_MAX
from app.http.reports.schema import Class, CursorObject
from app.http.webhooks.ports import EndpointView, Tried

NAME_CHARS_MAX: Final = 256
URL_CHARS_MAX: Final = 2_048

EventType = Literal[
    "response.completed",
    "response.failed",
    "response.cancelled",
    "response.incomplete",
    "job.completed",
    "job.failed",
    "job.cancelled",
    "generation.sealed",
    "generation.snapshot",
    "generation.crashed",
    "drain.completed",
    "drain.failed",
    "drain.cancelled",
]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Url = Annotated[str, Meta(min_length=1, max_length=URL_CHARS_MAX)]
EventTypes = Annotated[list[EventType], Meta(min_length=1)]
Event = Annotated[str, Meta(min_length=1, max_length=128)]


class EndpointRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receiver of events. ``from`` ``earliest`` sends what is kept as well."""

    name: Name
    url: Url
    event_types: EventTypes
    from_: Literal["earliest", "latest"] = msgspec.field(name="from", default="latest")
    classes: Annotated[list[Class], Meta(min_length=1)] | None = None
    tags: dict[str, str] | None = None
    include_attached: bool | None = None
    tenant: (
        Annotated[str, Meta(min_length=1, max_length=TENANT_CHARS_MAX, pattern=TENANT)] | None
    ) = None


class EndpointUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be otherwise; what is left out stays as it is."""

    name: Name | None = None
    url: Url | None = None
    event_types: EventTypes | None = None
    enabled: bool | None = None


class RotateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new secret; the old one signs too for a day, if it is to."""

    keep_old_secret_active_for_24_hours: bool = False


class TestRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sample of this type; the endpoint's first one unless given."""

    __test__ = False

    event_type: EventType | None = None


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of these: this event, all from this event on, or what was parked."""

    event: Event | None = None
    from_: Event | None = msgspec.field(name="from", default=None)
    parked: Literal[True] | None = None


class EndpointObject(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint. Times are Unix seconds. ``position`` is the place in the feed up to which all
    was delivered or set aside, or does not concern it; ``signing_secret`` is told only when it was
    made."""

    object: Literal["webhook_endpoint"] = "webhook_endpoint"
    id: str
    name: str
    url: str
    event_types: Sequence[str]
    created_at: int
    updated_at: int
    signing_secret_hint: str
    signing_secret: str | msgspec.UnsetType = msgspec.UNSET
    old_secret_until: int | None
    enabled: bool
    disabled_reason: str | None
    tenant: str | None
    classes: Sequence[str]
    tags: dict[str, str]
    include_attached: bool
    position: CursorObject
    end: CursorObject
    waiting: int
    parked: int


class EndpointList(msgspec.Struct, frozen=True, kw_only=True):
    """Endpoints, the latest first."""

    object: Literal["list"] = "list"
    data: list[EndpointObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class EndpointDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint is gone."""

    object: Literal["webhook_endpoint.deleted"] = "webhook_endpoint.deleted"
    id: str
    deleted: bool = True


class TestResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the endpoint answered; ``success`` says that it answered at all."""

    __test__ = False

    object: Literal["webhook_endpoint.test"] = "webhook_endpoint.test"
    webhook_endpoint_id: str
    event_type: str
    status_code: int
    success: bool = True
    took_ms: int


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """It is being sent again; ``replayed`` is how many, where that is known."""

    object: Literal["webhook_endpoint.replay"] = "webhook_endpoint.replay"
    webhook_endpoint_id: str
    replayed: int | None


class EventTypeList(msgspec.Struct, frozen=True, kw_only=True):
    """What can be sent."""

    object: Literal["list"] = "list"
    data: Sequence[str]


class DeliveryObject(msgspec.Struct, frozen=True, kw_only=True):
    """One event at one endpoint. ``attempts`` are the latest tries."""

    object: Literal["webhook_delivery"] = "webhook_delivery"
    id: str
    event_type: str
    seq: int
    state: str
    tries: int
    first_at: datetime
    next_at: datetime | None
    ended_at: datetime | None
    attempts: Sequence[Try]


class DeliveryList(msgspec.Struct, frozen=True, kw_only=True):
    """Deliveries, the latest report first."""

    object: Literal["list"] = "list"
    data: list[DeliveryObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


def endpoint_object(
    view: EndpointView, epoch: str, state: FeedState, hint: str, *, secret: bool = False
) -> EndpointObject:
    """One endpoint, with its secret only when it has just been made."""
    endpoint, consumer = view.endpoint, view.consumer
    until = endpoint.old_secret_until
    return EndpointObject(
        id=endpoint.id,
        name=endpoint.name,
        url=endpoint.url,
        event_types=endpoint.event_types,
        created_at=int(endpoint.created_at.timestamp()),
        updated_at=int(endpoint.updated_at.timestamp()),
        signing_secret_hint=hint,
        signing_secret=endpoint.secret if secret else msgspec.UNSET,
        old_secret_until=None if until is None else int(until.timestamp()),
        enabled=endpoint.state is EndpointState.ENABLED,
        disabled_reason=endpoint.reason,
        tenant=endpoint.tenant,
        classes=consumer.selection.classes,
        tags=dict(consumer.selection.tags),
        include_attached=consumer.selection.include_attached,
        position=CursorObject(epoch, consumer.acked),
        end=CursorObject(epoch, state.last),
        waiting=view.waiting,
        parked=view.parked,
    )


def delivery_object(delivery: Delivery) -> DeliveryObject:
    """One delivery."""
    return DeliveryObject(
        id=delivery.event,
        event_type=delivery.type,
        seq=delivery.seq,
        state=delivery.state,
        tries=delivery.tries,
        first_at=delivery.first_at,
        next_at=delivery.next_at,
        ended_at=delivery.ended_at,
        attempts=delivery.log,
    )


def test_result(tried: Tried) -> TestResult:
    """What a sample came to."""
    return TestResult(
        webhook_endpoint_id=tried.endpoint,
        event_type=tried.type,
        status_code=tried.status,
        took_ms=tried.took_ms,
    )
