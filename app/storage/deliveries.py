"""Events as they are sent, and how each stands at each endpoint.

A consumer's cursor passes an event only in the operation that writes down how its delivery stands:
delivered, waiting for another try, or parked. So no crash loses one.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from sqlite3 import Row
from typing import Any, Final

import msgspec

from app.domain.webhooks import ASIDE_MAX, Delivery, DeliveryState, Event, Try, consumer_of
from app.storage.consumers import consumer_subject, rewind_step
from app.storage.encoding import checksum, micros, moment
from app.storage.operations import Operation, Params, Rank, Statement, Step, in_commit_order
from app.storage.readers import Readers
from app.storage.sql import insert, json_list

_INSERT_EVENT: Final = Statement(
    "event.insert",
    Rank.EVENT_INSERT,
    insert("webhook_event", ("id", "seq", "type", "created_at", "checksum", "body"))
    + " ON CONFLICT (id) DO NOTHING",
    exact=False,
)

_RECORD: Final = Statement(
    "delivery.record",
    Rank.DELIVERY_RECORD,
    insert(
        "delivery",
        ("endpoint", "event", "seq", "state", "tries", "first_at", "next_at", "ended_at", "log"),
    )
    + " ON CONFLICT (endpoint, event) DO UPDATE SET state = excluded.state,"
    " tries = excluded.tries, first_at = excluded.first_at, next_at = excluded.next_at,"
    " ended_at = excluded.ended_at, log = excluded.log",
)

_AGAIN: Final = (
    "UPDATE delivery SET state = 'waiting', tries = 0, first_at = :now, next_at = :now,"
    " ended_at = NULL WHERE endpoint = :endpoint"
)
_AGAIN_ONE: Final = Statement(
    "delivery.again", Rank.DELIVERY_REPLAY, f"{_AGAIN} AND event = :event"
)
_AGAIN_PARKED: Final = Statement(
    "delivery.again_parked",
    Rank.DELIVERY_REPLAY,
    f"{_AGAIN} AND event IN (SELECT event FROM delivery WHERE endpoint = :endpoint"  # noqa: S608
    " AND state = 'parked' ORDER BY seq LIMIT :limit)",
    exact=False,
)
_FORGET: Final = Statement(
    "delivery.forget",
    Rank.DELIVERY_REPLAY,
    "DELETE FROM delivery WHERE endpoint = :endpoint AND seq > :to AND state <> 'delivered'",
    exact=False,
)

_FORGET_AHEAD: Final = Statement(
    "delivery.forget_ahead",
    Rank.DELIVERY_REPLAY,
    "DELETE FROM delivery WHERE endpoint = :endpoint AND state <> 'delivered'"
    " AND seq > (SELECT acked FROM consumer WHERE name = :consumer)",
    exact=False,
)

# What was sent goes with its report; what was not, when nobody asked for it again for as long.
_DELETE_DELIVERED: Final = Statement(
    "delivery.delete",
    Rank.DELIVERY_DELETE,
    "DELETE FROM delivery WHERE seq <= :through AND state = 'delivered'",
    exact=False,
)
_DELETE_PARKED: Final = Statement(
    "delivery.delete_parked",
    Rank.DELIVERY_DELETE,
    "DELETE FROM delivery WHERE state = 'parked' AND ended_at < :before",
    exact=False,
)
_DELETE_EVENTS: Final = Statement(
    "event.delete",
    Rank.EVENT_DELETE,
    "DELETE FROM webhook_event WHERE seq <= (SELECT pruned FROM feed)"
    " AND NOT EXISTS (SELECT 1 FROM delivery WHERE event = webhook_event.id)",
    exact=False,
)


def insert_events(events: Sequence[Event]) -> Operation:
    """Write down what will be sent. What is written already stays as it is."""
    return Operation(
        name="insert_events",
        subjects=tuple(f"event/{event.id}" for event in events),
        steps=tuple(Step(_INSERT_EVENT, _event_row(event), event.id) for event in events),
    )


def record(told: Delivery, *further: Step) -> Operation:
    """How a delivery stands, and with it where its endpoint's consumer does."""
    steps = [Step(_RECORD, _delivery_row(told), told.event), *further]
    return _of_endpoint("record_delivery", told.endpoint, *steps)


def replay_one(endpoint: str, event: str, now: datetime) -> Operation:
    """This event again, from the first try on. Void when it has not been sent yet."""
    params: Params = {"endpoint": endpoint, "event": event, "now": micros(now)}
    return _of_endpoint("replay_event", endpoint, Step(_AGAIN_ONE, params, event))


def replay_parked(endpoint: str, now: datetime, room: int) -> Operation:
    """What was given up, the oldest first, as far as there is room beside what waits already."""
    params: Params = {"endpoint": endpoint, "now": micros(now), "limit": room}
    return _of_endpoint("replay_parked", endpoint, Step(_AGAIN_PARKED, params, endpoint))


def replay_from(endpoint: str, seq: int) -> Operation:
    """All that it is shown from this place of the feed on. Void when not all of that is kept."""
    params: Params = {"endpoint": endpoint, "to": seq - 1}
    rewind = rewind_step(consumer_of(endpoint), seq - 1)
    return _of_endpoint("replay_from", endpoint, rewind, Step(_FORGET, params, endpoint))


def forget_ahead_step(endpoint: str) -> Step:
    """What was set aside, and comes again since its consumer has begun anew."""
    params: Params = {"endpoint": endpoint, "consumer": consumer_of(endpoint)}
    return Step(_FORGET_AHEAD, params, endpoint)


def delete_steps(through: int) -> tuple[Step, ...]:
    """What was sent of reports up to this place goes with them."""
    return Step(_DELETE_DELIVERED, {"through": through}), Step(_DELETE_EVENTS, {})


def delete_parked(before: datetime) -> Operation:
    """What was given up so long ago, and the events that nobody needs any more."""
    steps = (Step(_DELETE_PARKED, {"before": micros(before)}), Step(_DELETE_EVENTS, {}))
    return Operation(name="delete_parked", subjects=("reports",), steps=steps)


async def load_events(readers: Readers, events: Collection[str]) -> dict[str, Event | None]:
    """Those of these that are written down, by id; None for one that is damaged on disk."""
    rows = await readers.rows(_EVENTS, {"events": json_list(events)})
    return {row["id"]: _event_from(row) for row in rows}


async def load_place(readers: Readers, event: str, report: str, revision: int) -> int | None:
    """Where the report of this event stands in the feed; None when it is not kept.

    Events that were written down for an endpoint tell. For another the feed is gone through, since
    reports have no index by id: each would change a page of its own in it.
    """
    params: Params = {"event": event, "id": report, "revision": revision}
    seq = await readers.value("SELECT seq FROM webhook_event WHERE id = :event", params)
    if seq is not None:
        kept = "SELECT seq FROM report WHERE seq = :seq AND id = :id AND revision = :revision"
        return await readers.value(kept, {**params, "seq": seq})
    return await readers.value(
        "SELECT seq FROM report WHERE id = :id AND revision = :revision", params
    )


async def load_waiting(readers: Readers, endpoint: str) -> list[Delivery]:
    """What waits for another try, in the order of the feed."""
    params: Params = {"endpoint": endpoint, "limit": ASIDE_MAX + 1}
    return [_delivery_from(row) for row in await readers.rows(_WAITING, params)]


async def load_deliveries(
    readers: Readers, endpoint: str, state: str | None, before: int | None, limit: int
) -> list[Delivery]:
    """An endpoint's, the latest first; ``before`` is a place in the feed."""
    wanted = "delivery.endpoint = :endpoint"
    if state is not None:
        wanted += " AND delivery.state = :state"
    if before is not None:
        wanted += " AND delivery.seq < :before"
    params: Params = {"endpoint": endpoint, "state": state, "before": before, "limit": limit}
    query = f"{_DELIVERIES} WHERE {wanted} ORDER BY delivery.seq DESC LIMIT :limit"
    return [_delivery_from(row) for row in await readers.rows(query, params)]


async def count_deliveries(readers: Readers) -> dict[str, dict[str, int]]:
    """How many wait and are parked, by endpoint and state."""
    counts: dict[str, dict[str, int]] = {}
    for row in await readers.rows(_COUNTS):
        counts.setdefault(row["endpoint"], {})[row["state"]] = row["count"]
    return counts


async def oldest_parked(readers: Readers) -> datetime | None:
    """When the first of those that were given up was; None when there are none."""
    found = await readers.value("SELECT min(ended_at) FROM delivery WHERE state = 'parked'")
    return None if found is None else moment(found)


_EVENTS: Final = "SELECT * FROM webhook_event WHERE id IN (SELECT value FROM json_each(:events))"
_DELIVERIES: Final = (
    "SELECT delivery.*, webhook_event.type FROM delivery"
    " JOIN webhook_event ON webhook_event.id = delivery.event"
)
_WAITING: Final = _DELIVERIES + (
    " WHERE delivery.endpoint = :endpoint AND delivery.state = 'waiting'"
    " ORDER BY delivery.seq LIMIT :limit"
)
_COUNTS: Final = (
    "SELECT endpoint, state, count(*) AS count FROM delivery WHERE state <> 'delivered'"
    " GROUP BY endpoint, state"
)


def _of_endpoint(name: str, endpoint: str, *steps: Step) -> Operation:
    return Operation(
        name=name,
        subjects=(consumer_subject(consumer_of(endpoint)),),
        steps=in_commit_order(list(steps)),
    )


def _event_row(event: Event) -> Params:
    return {
        "id": event.id,
        "seq": event.seq,
        "type": event.type,
        "created_at": micros(event.created_at),
        "checksum": checksum(event.body),
        "body": event.body,
    }


def _event_from(row: Row) -> Event | None:
    if checksum(row["body"]) != row["checksum"]:
        return None
    return Event(
        id=row["id"],
        seq=row["seq"],
        type=row["type"],
        created_at=moment(row["created_at"]),
        body=row["body"],
    )


def _delivery_row(told: Delivery) -> Params:
    return {
        "endpoint": told.endpoint,
        "event": told.event,
        "seq": told.seq,
        "state": told.state,
        "tries": told.tries,
        "first_at": micros(told.first_at),
        "next_at": None if told.next_at is None else micros(told.next_at),
        "ended_at": None if told.ended_at is None else micros(told.ended_at),
        "log": msgspec.json.encode(told.log).decode(),
    }


def _delivery_from(row: Row) -> Delivery:
    next_at: Any = row["next_at"]
    ended_at: Any = row["ended_at"]
    return Delivery(
        endpoint=row["endpoint"],
        event=row["event"],
        seq=row["seq"],
        type=row["type"],
        state=DeliveryState(row["state"]),
        tries=row["tries"],
        first_at=moment(row["first_at"]),
        next_at=None if next_at is None else moment(next_at),
        ended_at=None if ended_at is None else moment(ended_at),
        log=msgspec.json.decode(row["log"], type=tuple[Try, ...]),
    )
