"""Webhook endpoints: made, changed, disabled, deleted, each together with its consumer."""

from collections.abc import Iterable
from datetime import datetime
from sqlite3 import Row
from typing import Any, Final

import msgspec

from app.domain.feed import Selection, Start
from app.domain.webhooks import Endpoint, EndpointState, consumer_of
from app.storage.consumers import consumer_subject, delete_step, insert_step
from app.storage.deliveries import forget_ahead_step
from app.storage.encoding import micros, moment
from app.storage.operations import Operation, Params, Rank, Statement, Step, in_commit_order
from app.storage.readers import Readers
from app.storage.sql import insert

_STANDS: Final = "(SELECT acked FROM consumer WHERE name = :consumer)"

_INSERT: Final = Statement(
    "endpoint.insert",
    Rank.ENDPOINT_INSERT,
    insert(
        "webhook_endpoint",
        ("id", "tenant", "name", "url", "event_types", "secret", "created_at", "updated_at"),
        since=_STANDS,
    ),
)

# Other event types: what it was sent is known only from where it stands now.
_UPDATE: Final = Statement(
    "endpoint.update",
    Rank.ENDPOINT_UPDATE,
    "UPDATE webhook_endpoint SET name = :name, url = :url, state = :state, reason = :reason,"  # noqa: S608
    " since = iif(event_types = :event_types AND NOT :anew, since, "
    f"{_STANDS}), event_types = :event_types, secret = :secret,"
    " old_secret = :old_secret, old_secret_until = :old_secret_until, updated_at = :updated_at"
    " WHERE id = :id",
)

_DISABLE: Final = Statement(
    "endpoint.disable",
    Rank.ENDPOINT_UPDATE,
    "UPDATE webhook_endpoint SET state = 'disabled', reason = :reason, updated_at = :now"
    " WHERE id = :id AND state = 'enabled'",
)

_DELETE: Final = Statement(
    "endpoint.delete", Rank.ENDPOINT_DELETE, "DELETE FROM webhook_endpoint WHERE id = :id"
)


def insert_endpoint(endpoint: Endpoint, selection: Selection, start: Start) -> Operation:
    """An endpoint and its consumer. A full disk is answered."""
    params: Params = {
        "id": endpoint.id,
        "tenant": endpoint.tenant,
        "name": endpoint.name,
        "url": endpoint.url,
        "event_types": _json(endpoint.event_types),
        "secret": endpoint.secret,
        "created_at": micros(endpoint.created_at),
        "updated_at": micros(endpoint.updated_at),
        "consumer": endpoint.consumer,
    }
    made = insert_step(endpoint.consumer, selection, start, endpoint.created_at)
    return _operation("insert_endpoint", endpoint.id, made, Step(_INSERT, params, endpoint.id))


def update_endpoint(endpoint: Endpoint, begun: Step | None = None) -> Operation:
    """It is as this says from now on; ``begun`` lets its consumer begin anew. Void when it was
    deleted. A full disk is answered."""
    until = endpoint.old_secret_until
    params: Params = {
        "id": endpoint.id,
        "name": endpoint.name,
        "url": endpoint.url,
        "state": endpoint.state,
        "reason": endpoint.reason,
        "event_types": _json(endpoint.event_types),
        "secret": endpoint.secret,
        "old_secret": endpoint.old_secret,
        "old_secret_until": None if until is None else micros(until),
        "updated_at": micros(endpoint.updated_at),
        "consumer": endpoint.consumer,
        "anew": int(begun is not None),
    }
    steps = () if begun is None else (begun, forget_ahead_step(endpoint.id))
    return _operation("update_endpoint", endpoint.id, *steps, Step(_UPDATE, params, endpoint.id))


def disable_step(endpoint: str, reason: str, now: datetime) -> Step:
    """It is sent nothing more, for this reason. Void when it is disabled already."""
    return Step(_DISABLE, {"id": endpoint, "reason": reason, "now": micros(now)}, endpoint)


def disable_endpoint(endpoint: str, reason: str, now: datetime) -> Operation:
    """The same as an operation of its own."""
    step = disable_step(endpoint, reason, now)
    subjects = (consumer_subject(consumer_of(endpoint)),)
    return Operation(name="disable_endpoint", subjects=subjects, steps=(step,))


def delete_endpoint(endpoint: str) -> Operation:
    """The endpoint, its consumer and its deliveries. Void when there is none."""
    gone = Step(_DELETE, {"id": endpoint}, endpoint)
    return _operation("delete_endpoint", endpoint, delete_step(consumer_of(endpoint)), gone)


async def load_endpoints(readers: Readers) -> list[Endpoint]:
    """All of them, oldest first."""
    rows = await readers.rows("SELECT * FROM webhook_endpoint ORDER BY id")
    return [_endpoint_from(row) for row in rows]


async def load_endpoint(readers: Readers, endpoint: str) -> Endpoint | None:
    """This one, if it is there."""
    row = await readers.row("SELECT * FROM webhook_endpoint WHERE id = :id", {"id": endpoint})
    return None if row is None else _endpoint_from(row)


def _operation(name: str, endpoint: str, *steps: Step) -> Operation:
    return Operation(
        name=name,
        subjects=(consumer_subject(consumer_of(endpoint)),),
        steps=in_commit_order(list(steps)),
        patient=False,
    )


def _json(value: Iterable[str]) -> str:
    return msgspec.json.encode(tuple(value)).decode()


def _endpoint_from(row: Row) -> Endpoint:
    until: Any = row["old_secret_until"]
    return Endpoint(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        url=row["url"],
        state=EndpointState(row["state"]),
        reason=row["reason"],
        event_types=msgspec.json.decode(row["event_types"], type=tuple[str, ...]),
        secret=row["secret"],
        old_secret=row["old_secret"],
        old_secret_until=None if until is None else moment(until),
        created_at=moment(row["created_at"]),
        updated_at=moment(row["updated_at"]),
    )
