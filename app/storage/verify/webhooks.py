"""Webhooks: no event is lost on its way, and what is sent is what was written."""

import sqlite3
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from app.domain.feed import About, Report, Selection
from app.domain.webhooks import event_id, type_of
from app.storage.encoding import checksum, moment
from app.storage.verify.violation import Row, Rule, Violation, broken, first

_STANDING: Final = (
    Rule(
        "has no consumer",
        "SELECT id FROM webhook_endpoint"
        " WHERE NOT EXISTS (SELECT 1 FROM consumer WHERE name = 'webhook:' || id)",
    ),
    Rule(
        "is the consumer of an endpoint that is not there",
        "SELECT name FROM consumer WHERE name LIKE 'webhook:%'"
        " AND substr(name, 9) NOT IN (SELECT id FROM webhook_endpoint)",
    ),
    Rule(
        "was sent {}, which lies ahead of where it stands ({} > {})",
        "SELECT delivery.endpoint, delivery.event, seq, acked FROM delivery"
        " JOIN consumer ON consumer.name = 'webhook:' || delivery.endpoint"
        " WHERE delivery.state <> 'delivered' AND seq > acked AND consumer.state = 'live'",
    ),
    Rule(
        "stands at {} for {}, and by itself at {}",
        "SELECT delivery.event, delivery.seq, delivery.endpoint, webhook_event.seq"
        " FROM delivery JOIN webhook_event ON webhook_event.id = delivery.event"
        " WHERE delivery.seq <> webhook_event.seq",
    ),
)

_EVENTS: Final = "SELECT id, checksum, body FROM webhook_event"

_ENDPOINTS: Final = (
    "SELECT webhook_endpoint.id, event_types, since, acked, consumer.tenant, include_attached,"
    " kinds, classes, tags FROM webhook_endpoint"
    " JOIN consumer ON consumer.name = 'webhook:' || webhook_endpoint.id"
    " WHERE consumer.state = 'live' AND since < acked"
)
_PASSED: Final = (
    "SELECT id, revision, seq, kind, subject, outcome, reason, complete, created_at, payload"
    " FROM report WHERE seq > ? AND seq <= ? AND tombstone = 0"
)
_SENT: Final = "SELECT event FROM delivery WHERE endpoint = ?"


def webhooks(driver: sqlite3.Connection) -> list[Violation]:
    """Each event that an endpoint has passed was delivered, waits or is parked."""
    found = broken(driver, "webhooks", *_STANDING)
    return first([*found, *_damaged(driver), *_lost(driver)])


def _damaged(driver: sqlite3.Connection) -> Iterator[Violation]:
    for name, stored, body in driver.execute(_EVENTS):
        if checksum(body) != stored:
            yield Violation("checksums", name, "its body is not what was written")


def _lost(driver: sqlite3.Connection) -> Iterator[Violation]:
    for row in driver.execute(_ENDPOINTS).fetchall():
        endpoint, event_types, since, acked, *selected = row
        types = msgspec.json.decode(event_types, type=list[str])
        selection = _selection(selected)
        sent = {event for (event,) in driver.execute(_SENT, (endpoint,))}
        for told in map(_report, driver.execute(_PASSED, (since, acked))):
            wanted = told.shown_to(selection) and type_of(told) in types
            if wanted and event_id(told) not in sent:
                text = f"has passed {event_id(told)}, which was neither delivered nor set aside"
                yield Violation("webhooks", endpoint, text)


def _selection(row: list[Any]) -> Selection:
    tenant, include_attached, *lists = row
    kinds, classes, tags = map(msgspec.json.decode, lists)
    stored = {
        "tenant": tenant,
        "include_attached": bool(include_attached),
        "kinds": kinds,
        "classes": classes,
        "tags": tags,
    }
    return msgspec.convert(stored, Selection)


def _report(row: Row) -> Report:
    name, revision, seq, kind, subject, outcome, reason, complete, created_at, payload = row
    return Report(
        id=name,
        revision=revision,
        seq=seq,
        kind=kind,
        subject=subject,
        outcome=outcome,
        reason=reason,
        complete=bool(complete),
        created_at=moment(created_at),
        payload=payload,
        about=msgspec.json.decode(payload, type=About),
    )
