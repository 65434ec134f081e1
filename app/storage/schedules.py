"""Schedules, and their firings.

A due fires in one transaction: the job, its row in ``firing`` (one a due) and the schedule's next
due, which must still be the one that was expected. Whatever dies when, a due that was fired is not
due any more, and one that was not still is.
"""

from datetime import datetime
from sqlite3 import Row
from typing import Final

import msgspec

from app.domain.draft import DueJob
from app.domain.schedules import CatchUp, Schedule, ScheduleState, Template, Timing
from app.storage.encoding import checksum, micros, millis, moment, seconds
from app.storage.errors import PayloadDamaged
from app.storage.operations import Operation, Params, Rank, Statement, Step
from app.storage.readers import Readers
from app.storage.sql import insert_where
from shared.ids import JobId, ScheduleId

_COLUMNS: Final = (
    "id",
    "tenant",
    "name",
    "state",
    "cron",
    "every_ms",
    "timezone",
    "anchor",
    "catch_up",
    "next_due",
    "created_at",
    "updated_at",
    "checksum",
    "draft",
)

_INSERT: Final = Statement(
    "schedule.insert",
    Rank.SCHEDULE_INSERT,
    insert_where(
        "schedule",
        _COLUMNS,
        "NOT EXISTS (SELECT 1 FROM schedule WHERE tenant = :tenant AND name = :name)"
        " AND (SELECT count(*) FROM schedule) < :schedules_max",
    ),
)
"""Void when the name is taken, or there are as many as there may be."""

_CHANGE: Final = Statement(
    "schedule.change",
    Rank.SCHEDULE_CHANGE,
    "UPDATE schedule SET state = :state, cron = :cron, every_ms = :every_ms,"
    " timezone = :timezone, anchor = :anchor, catch_up = :catch_up, next_due = :next_due,"
    " updated_at = :updated_at, checksum = :checksum, draft = :draft"
    " WHERE id = :id AND next_due IS :expected AND last_due IS :last_due AND state = :was",
)

_SKIP: Final = Statement(
    "schedule.skip",
    Rank.SCHEDULE_CHANGE,
    "UPDATE schedule SET next_due = :following WHERE id = :schedule AND next_due = :expected",
)

_FIRE: Final = Statement(
    "schedule.fire",
    Rank.SCHEDULE_FIRE,
    "UPDATE schedule SET next_due = :following, last_due = :due, fired = fired + 1"
    " WHERE id = :schedule AND state = 'active' AND next_due = :expected",
)

_FIRING: Final = Statement(
    "firing.insert",
    Rank.FIRING_INSERT,
    insert_where(
        "firing",
        ("schedule", "due", "job", "fired_at"),
        "NOT EXISTS (SELECT 1 FROM firing WHERE schedule = :schedule AND due = :due)",
    ),
)

_DELETE: Final = Statement(
    "schedule.delete", Rank.SCHEDULE_DELETE, "DELETE FROM schedule WHERE id = :schedule"
)

_TEMPLATE: Final = msgspec.msgpack.Decoder(Template)
_ENCODER: Final = msgspec.msgpack.Encoder()


def insert_schedule(new: Schedule, template: Template, schedules_max: int) -> Operation:
    """A new schedule. Impatient: a full disk is answered, not waited out."""
    params = {**_row(new, template), "schedules_max": schedules_max}
    return Operation(
        name="insert_schedule",
        subjects=(new.id, f"schedule/{new.tenant}/{new.name}"),
        steps=(Step(_INSERT, params, new.id),),
        patient=False,
    )


def change_schedule(was: Schedule, new: Schedule, template: Template) -> Operation:
    """A schedule as it is from now on; void when it has fired, changed or gone meanwhile."""
    params: Params = {
        **_row(new, template),
        "expected": _micros(was.next_due),
        "last_due": _micros(was.last_due),
        "was": was.state,
    }
    return Operation(
        name="change_schedule",
        subjects=(new.id,),
        steps=(Step(_CHANGE, params, new.id),),
        patient=False,
    )


def skip_dues(schedule_id: ScheduleId, expected: datetime, following: datetime) -> Operation:
    """What was missed up to ``following`` fires no more."""
    params: Params = {
        "schedule": schedule_id,
        "expected": micros(expected),
        "following": micros(following),
    }
    return Operation(
        name="skip_dues", subjects=(schedule_id,), steps=(Step(_SKIP, params, schedule_id),)
    )


def delete_schedule(schedule_id: ScheduleId) -> Operation:
    """The schedule fires no more; the jobs that it submitted stay."""
    step = Step(_DELETE, {"schedule": schedule_id}, schedule_id)
    return Operation(
        name="delete_schedule", subjects=(schedule_id,), steps=(step,), patient=False, forgets=True
    )


def firing_steps(due: DueJob, job: JobId, now: datetime) -> list[Step]:
    """To be added to a job's insert: it is submitted for this due, and no other ever is. Void at
    ``firing.insert`` or ``schedule.fire`` when that cannot be."""
    row: Params = {
        "schedule": due.schedule,
        "expected": micros(due.expected),
        "due": micros(due.due),
        "following": micros(due.following),
        "job": job,
        "fired_at": micros(now),
    }
    return [Step(_FIRING, row, due.schedule), Step(_FIRE, row, due.schedule)]


async def load_schedules(readers: Readers, tenant: str | None = None) -> list[Schedule]:
    """All schedules (of one tenant), by name."""
    of_tenant = "" if tenant is None else "WHERE tenant = :tenant"
    rows = await readers.rows(f"{_SCHEDULE} {of_tenant} ORDER BY name, tenant", {"tenant": tenant})
    return [_schedule_from(row) for row in rows]


async def load_schedule(readers: Readers, tenant: str, key: str) -> Schedule | None:
    """The schedule of a tenant with this id or name, if there is one."""
    row = await readers.row(
        _SCHEDULE + "WHERE tenant = :tenant AND (id = :key OR name = :key)",
        {"tenant": tenant, "key": key},
    )
    return None if row is None else _schedule_from(row)


async def load_template(readers: Readers, schedule_id: ScheduleId) -> Template | None:
    """What a schedule submits; None when it has gone.

    Raises:
        PayloadDamaged: it is not what was written.
    """
    row = await readers.row(
        "SELECT draft, checksum FROM schedule WHERE id = :id", {"id": schedule_id}
    )
    if row is None:
        return None
    if checksum(row["draft"]) != row["checksum"]:
        raise PayloadDamaged("schedule", schedule_id)
    return _TEMPLATE.decode(row["draft"])


_SCHEDULE: Final = """
SELECT id, tenant, name, state, cron, every_ms, timezone, anchor, catch_up, next_due, last_due,
    fired, created_at, updated_at,
    (SELECT job FROM firing WHERE firing.schedule = schedule.id ORDER BY due DESC LIMIT 1)
        AS last_job
FROM schedule
"""


def _row(new: Schedule, template: Template) -> dict[str, str | int | bytes | None]:
    body = _ENCODER.encode(template)
    return {
        "id": new.id,
        "tenant": new.tenant,
        "name": new.name,
        "state": new.state,
        "cron": new.timing.cron,
        "every_ms": millis(new.timing.every_s),
        "timezone": new.timing.timezone,
        "anchor": micros(new.timing.anchor),
        "catch_up": new.timing.catch_up,
        "next_due": _micros(new.next_due),
        "created_at": micros(new.created_at),
        "updated_at": micros(new.updated_at),
        "checksum": checksum(body),
        "draft": body,
    }


def _schedule_from(row: Row) -> Schedule:
    return Schedule(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        state=ScheduleState(row["state"]),
        timing=Timing(
            anchor=moment(row["anchor"]),
            cron=row["cron"],
            every_s=seconds(row["every_ms"]),
            timezone=row["timezone"],
            catch_up=CatchUp(row["catch_up"]),
        ),
        next_due=_moment(row["next_due"]),
        last_due=_moment(row["last_due"]),
        last_job=row["last_job"],
        fired=row["fired"],
        created_at=moment(row["created_at"]),
        updated_at=moment(row["updated_at"]),
    )


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def _moment(stored: int | None) -> datetime | None:
    return None if stored is None else moment(stored)
