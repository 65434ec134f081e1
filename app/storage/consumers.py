"""Consumers of the feed: made, read for, acknowledged, parked, deleted.

Whoever acts on reports inside this process acknowledges in the same operation as what it does
(``ack_step``): then each report has its effect once, whatever crashes.
"""

from collections.abc import Sequence
from datetime import datetime
from sqlite3 import Row
from typing import Final

import msgspec

from app.domain.feed import Consumer, ConsumerState, Selection, Start
from app.storage.encoding import micros, moment
from app.storage.operations import Operation, Params, Rank, Statement, Step
from app.storage.readers import Readers

# A parked one is begun anew by its own name; a live one is not touched.
_INSERT: Final = Statement(
    "consumer.insert",
    Rank.CONSUMER_INSERT,
    "INSERT INTO consumer (name, tenant, state, acked, passed, created_at, seen_at,"
    " include_attached, kinds, classes, tags)"
    " SELECT :name, :tenant, 'live', iif(:latest, last, pruned), iif(:latest, last, pruned), :now,"
    " :now, :include_attached, :kinds, :classes, :tags FROM feed WHERE true"
    " ON CONFLICT (name) DO UPDATE SET tenant = excluded.tenant, state = 'live',"
    " parked_reason = NULL, acked = excluded.acked, passed = excluded.passed,"
    " created_at = excluded.created_at, seen_at = excluded.seen_at,"
    " include_attached = excluded.include_attached, kinds = excluded.kinds,"
    " classes = excluded.classes, tags = excluded.tags WHERE consumer.state = 'parked'",
)

_ACK: Final = Statement(
    "consumer.ack",
    Rank.CONSUMER_ACK,
    "UPDATE consumer SET acked = max(acked, :through), passed = max(passed, :through),"
    " seen_at = max(seen_at, :now)"
    " WHERE name = :name AND state = 'live' AND :through <= (SELECT last FROM feed)"
    " AND (:expected IS NULL OR acked = :expected)",
)

_SEEN: Final = Statement(
    "consumer.seen",
    Rank.CONSUMER_SEEN,
    "UPDATE consumer SET seen_at = max(seen_at, :now),"
    " passed = max(passed, min(:passed, (SELECT last FROM feed)))"
    " WHERE name = :name AND state = 'live' AND created_at = :created_at",
    exact=False,
)

_PARK: Final = Statement(
    "consumer.park",
    Rank.CONSUMER_PARK,
    "UPDATE consumer SET state = 'parked', parked_reason = :reason"
    " WHERE name = :name AND state = 'live' AND seen_at = :seen_at AND passed = :passed",
)

_REWIND: Final = Statement(
    "consumer.rewind",
    Rank.CONSUMER_REWIND,
    "UPDATE consumer SET acked = :to, passed = :to WHERE name = :name AND state = 'live'"
    " AND acked >= :to AND :to >= (SELECT pruned FROM feed)",
)

_DELETE: Final = Statement(
    "consumer.delete", Rank.CONSUMER_DELETE, "DELETE FROM consumer WHERE name = :name"
)


def insert_consumer(name: str, selection: Selection, start: Start, now: datetime) -> Operation:
    """A consumer that reads what is kept, or what comes from now on. One that was parked begins
    anew. Void when a live one has this name. A full disk is answered."""
    return Operation(
        name="insert_consumer",
        subjects=(consumer_subject(name),),
        steps=(insert_step(name, selection, start, now),),
        patient=False,
    )


def insert_step(name: str, selection: Selection, start: Start, now: datetime) -> Step:
    """The same as a part of an operation."""
    params: Params = {
        "name": name,
        "tenant": selection.tenant,
        "latest": int(start == "latest"),
        "now": micros(now),
        "include_attached": int(selection.include_attached),
        "kinds": _json(selection.kinds),
        "classes": _json(selection.classes),
        "tags": _json(dict(selection.tags)),
    }
    return Step(_INSERT, params, name)


def ack_step(name: str, through: int, now: datetime, expected: int | None = None) -> Step:
    """Everything up to this place is done. Void when the consumer is not live, when ``expected``
    is given and not where it stands, and when no such place has been committed."""
    params: Params = {
        "name": name,
        "through": through,
        "now": micros(now),
        "expected": expected,
    }
    return Step(_ACK, params, name)


def ack_consumer(name: str, through: int, now: datetime, expected: int | None = None) -> Operation:
    """The same as an operation of its own. A full disk is answered."""
    return Operation(
        name="ack_consumer",
        subjects=(consumer_subject(name),),
        steps=(ack_step(name, through, now, expected),),
        patient=False,
    )


def consumer_seen(found: Consumer, passed: int, now: datetime) -> Operation:
    """It has asked, and nothing up to ``passed`` that it had not acknowledged concerns it. Changes
    nothing of one that was parked, deleted or begun anew since it was looked at."""
    params: Params = {
        "name": found.name,
        "passed": passed,
        "now": micros(now),
        "created_at": micros(found.created_at),
    }
    return _operation("consumer_seen", found.name, _SEEN, params)


def park_consumer(found: Consumer, reason: str) -> Operation:
    """Its place is not kept any more. Void when it was heard of since it was looked at."""
    params: Params = {
        "name": found.name,
        "reason": reason,
        "seen_at": micros(found.seen_at),
        "passed": found.passed,
    }
    return _operation("park_consumer", found.name, _PARK, params)


def delete_consumer(name: str) -> Operation:
    """Void when there is none."""
    return Operation(
        name="delete_consumer", subjects=(consumer_subject(name),), steps=(delete_step(name),)
    )


def delete_step(name: str) -> Step:
    """The same as a part of an operation."""
    return Step(_DELETE, {"name": name}, name)


def rewind_step(name: str, to: int) -> Step:
    """It is shown again what lies behind this place. Void when it is not live, stands before it, or
    when not all of that is kept."""
    return Step(_REWIND, {"name": name, "to": to}, name)


def consumer_subject(name: str) -> str:
    """What orders the changes of one consumer."""
    return f"consumer/{name}"


async def load_consumer(readers: Readers, name: str) -> Consumer | None:
    """This consumer, if there is one."""
    row = await readers.row("SELECT * FROM consumer WHERE name = :name", {"name": name})
    return None if row is None else _consumer_from(row)


async def load_consumers(readers: Readers) -> list[Consumer]:
    """All of them, by name."""
    rows = await readers.rows("SELECT * FROM consumer ORDER BY name")
    return [_consumer_from(row) for row in rows]


async def load_slowest(readers: Readers) -> Consumer | None:
    """The live consumer that keeps the oldest reports; None when none is live."""
    row = await readers.row(
        "SELECT * FROM consumer WHERE state = 'live' ORDER BY passed, seen_at LIMIT 1"
    )
    return None if row is None else _consumer_from(row)


def _operation(operation: str, name: str, statement: Statement, params: Params) -> Operation:
    return Operation(
        name=operation,
        subjects=(consumer_subject(name),),
        steps=(Step(statement, params, name),),
    )


def _json(value: Sequence[str] | dict[str, str]) -> str:
    return msgspec.json.encode(value).decode()


def _consumer_from(row: Row) -> Consumer:
    stored = {
        "tenant": row["tenant"],
        "include_attached": bool(row["include_attached"]),
        **{name: msgspec.json.decode(row[name]) for name in ("kinds", "classes", "tags")},
    }
    return Consumer(
        name=row["name"],
        selection=msgspec.convert(stored, Selection),
        state=ConsumerState(row["state"]),
        parked_reason=row["parked_reason"],
        acked=row["acked"],
        passed=row["passed"],
        created_at=moment(row["created_at"]),
        seen_at=moment(row["seen_at"]),
    )
