"""Drains: begun, counted on, ended with their one report.

What was in flight when a drain began is counted until all of it has finished, gone back or been
cancelled: that sum is its proof. A drain does not outlive its parent; the next one ends it.
"""

from collections.abc import Sequence
from datetime import datetime
from sqlite3 import Row
from typing import Final

import msgspec

from app.domain.view import DrainView
from app.storage.encoding import micros, millis, moment
from app.storage.operations import NewReport, Operation, Params, Rank, Statement, Step
from app.storage.readers import Readers
from app.storage.sql import insert
from shared.ids import report_id

INTERRUPTED: Final = "interrupted"
"""The reason of a drain whose parent ended before it."""

_COUNTS: Final = "finished = :finished, given_back = :given_back, cancelled = :cancelled"

_INSERT: Final = Statement(
    "drain.insert",
    Rank.DRAIN_INSERT,
    insert("drain", ("id", "mode", "scope", "state", "started_at", "timeout_ms", "in_flight")),
)

_PROGRESS: Final = Statement(
    "drain.progress",
    Rank.DRAIN_PROGRESS,
    f"UPDATE drain SET {_COUNTS} WHERE id = :id AND state = 'running'",  # noqa: S608
)

_END: Final = Statement(
    "drain.end",
    Rank.DRAIN_END,
    f"UPDATE drain SET {_COUNTS}, state = :state, reason = :reason, ended_at = :ended_at"  # noqa: S608
    " WHERE id = :id AND state = 'running'",
)


class DrainReport(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a drain's report. ``complete`` is False when the counts are a lower bound."""

    drain: str
    outcome: str
    reason: str | None
    complete: bool
    mode: str
    scope: str
    started_at: datetime
    ended_at: datetime
    in_flight: int
    finished: int
    given_back: int
    cancelled: int


def insert_drain(drain: DrainView) -> Operation:
    """A drain that begins. Impatient: a full disk is answered, not waited out."""
    row: Params = {
        "id": drain.id,
        "mode": drain.mode,
        "scope": drain.scope,
        "state": "running",
        "started_at": micros(drain.started_at),
        "timeout_ms": millis(drain.timeout_s),
        "in_flight": drain.in_flight,
    }
    return Operation(
        name="insert_drain",
        subjects=(drain.id,),
        steps=(Step(_INSERT, row, drain.id),),
        patient=False,
    )


def drain_progress(drain: DrainView) -> Operation:
    """What became of so many by now. Void when the drain has ended."""
    params: Params = {"id": drain.id, **_counts(drain)}
    return Operation(
        name="drain_progress", subjects=(drain.id,), steps=(Step(_PROGRESS, params, drain.id),)
    )


def end_drain(drain: DrainView, *, complete: bool = True) -> Operation:
    """The drain has ended as this says (``state``, ``reason``, ``ended_at``, counts), with its
    report. Void when it had ended before. ``complete`` is False when the counts are a lower
    bound."""
    return Operation(
        name="end_drain",
        subjects=(drain.id,),
        steps=(_end_step(drain),),
        reports=(drain_report(drain, complete=complete),),
    )


def interrupt_drains(drains: Sequence[DrainView], now: datetime) -> Operation:
    """At boot: these were running when the parent before ended, and did not outlive it."""
    ended = [
        msgspec.structs.replace(drain, state="failed", reason=INTERRUPTED, ended_at=now)
        for drain in drains
    ]
    return Operation(
        name="interrupt_drains",
        subjects=tuple(drain.id for drain in ended),
        steps=tuple(map(_end_step, ended)),
        reports=tuple(drain_report(drain, complete=False) for drain in ended),
    )


def drain_report(drain: DrainView, *, complete: bool) -> NewReport:
    """The one report of a drain that has ended."""
    if drain.ended_at is None:
        raise ValueError(f"drain {drain.id} has not ended")
    payload = DrainReport(
        drain=drain.id,
        outcome=drain.state,
        reason=drain.reason,
        complete=complete,
        mode=drain.mode,
        scope=drain.scope,
        started_at=drain.started_at,
        ended_at=drain.ended_at,
        in_flight=drain.in_flight,
        finished=drain.finished,
        given_back=drain.given_back,
        cancelled=drain.cancelled,
    )
    return NewReport(
        id=report_id("drain", drain.id),
        kind="drain",
        subject=drain.id,
        outcome=payload.outcome,
        reason=payload.reason,
        complete=complete,
        payload=msgspec.json.encode(payload),
        created_at=drain.ended_at,
    )


async def load_latest_drain(readers: Readers) -> DrainView | None:
    """The drain that was begun last."""
    row = await readers.row("SELECT * FROM drain ORDER BY id DESC LIMIT 1")
    return None if row is None else _drain_from(row)


async def load_running_drains(readers: Readers) -> list[DrainView]:
    """Drains that have not ended: at boot, those that the parent before left behind."""
    rows = await readers.rows("SELECT * FROM drain WHERE state = 'running' ORDER BY id")
    return [_drain_from(row) for row in rows]


def _end_step(drain: DrainView) -> Step:
    params: Params = {
        "id": drain.id,
        "state": drain.state,
        "reason": drain.reason,
        "ended_at": None if drain.ended_at is None else micros(drain.ended_at),
        **_counts(drain),
    }
    return Step(_END, params, drain.id)


def _counts(drain: DrainView) -> Params:
    return {
        "finished": drain.finished,
        "given_back": drain.given_back,
        "cancelled": drain.cancelled,
    }


def _drain_from(row: Row) -> DrainView:
    return DrainView(
        id=row["id"],
        mode=row["mode"],
        scope=row["scope"],
        state=row["state"],
        started_at=moment(row["started_at"]),
        ended_at=None if row["ended_at"] is None else moment(row["ended_at"]),
        timeout_s=row["timeout_ms"] / 1000,
        in_flight=row["in_flight"],
        finished=row["finished"],
        given_back=row["given_back"],
        cancelled=row["cancelled"],
        reason=row["reason"],
    )
