"""Schedules: what fires a job by the clock, and what becomes of dues that were missed.

Dues only go forward: each is later than the one before, whatever the clock is set to, so none fires
twice. A due that passed while nobody could fire it was missed when a later one passed too, or when
it is older than ``LATE_S``: of all that were missed ``catch_up`` ``one`` fires the latest, once,
and ``none`` fires none.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

import msgspec

from app.domain.draft import JobDraft
from shared.ids import JobId, ScheduleId

SCHEDULES_MAX: Final = 1_000
"""Schedules in one store."""

LATE_S: Final = 60.0
"""A due that is fired so much after its time is still on time: a restart fits in."""


class ScheduleState(StrEnum):
    """Whether it fires."""

    ACTIVE = "active"
    PAUSED = "paused"


class CatchUp(StrEnum):
    """What becomes of dues that were missed: the latest is fired, or none."""

    ONE = "one"
    NONE = "none"


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When a schedule fires: by a cron expression, read in ``timezone`` (IANA), or every
    ``every_s`` seconds from ``anchor`` on."""

    anchor: datetime
    cron: str | None = None
    every_s: float | None = None
    timezone: str = "UTC"
    catch_up: CatchUp = CatchUp.ONE


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """The job that is submitted at each due. ``seeded`` is False where each draws its own seed."""

    draft: JobDraft
    seeded: bool


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is asked for. Of ``cron`` and ``every_s`` there is one."""

    name: str
    cron: str | None
    every_s: float | None
    timezone: str
    catch_up: CatchUp
    paused: bool
    template: Template


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be otherwise about a schedule; None leaves it as it is."""

    cron: str | None = None
    every_s: float | None = None
    timezone: str | None = None
    catch_up: CatchUp | None = None
    paused: bool | None = None
    template: Template | None = None


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, but for the job it submits. ``next_due`` is None while it is paused;
    ``last_due`` is the latest that fired, ``last_job`` what it submitted, while that is kept, and
    ``fired`` how many did. Times are aware UTC."""

    id: ScheduleId
    tenant: str
    name: str
    state: ScheduleState
    timing: Timing
    next_due: datetime | None
    last_due: datetime | None
    last_job: JobId | None
    fired: int
    created_at: datetime
    updated_at: datetime


class Trouble(msgspec.Struct, frozen=True):
    """Why a due could not be fired yet; it is tried again."""

    code: str
    message: str


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is told to people; what it submits is left out in lists."""

    schedule: Schedule
    template: Template | None
    trouble: Trouble | None


class Cadence(Protocol):
    """The dues of a timing. All moments are aware UTC."""

    def after(self, moment: datetime) -> datetime:
        """The first due after this moment."""
        ...

    def latest(self, moment: datetime) -> datetime:
        """The last due at or before this moment."""
        ...


class Wait(msgspec.Struct, frozen=True):
    """Nothing is due before ``due``."""

    due: datetime


class Fire(msgspec.Struct, frozen=True):
    """``due`` fires now; the next one is ``following``."""

    due: datetime
    following: datetime


class Skip(msgspec.Struct, frozen=True):
    """What was missed fires no more; the next due is ``following``."""

    following: datetime


Plan: TypeAlias = Wait | Fire | Skip


def plan(next_due: datetime, now: datetime, cadence: Cadence, catch_up: CatchUp) -> Plan:
    """What is to be done at ``now`` about a schedule whose next due was ``next_due``."""
    if next_due > now:
        return Wait(next_due)
    latest = max(next_due, cadence.latest(now))
    following = cadence.after(latest)
    on_time = now - latest <= timedelta(seconds=LATE_S)
    if on_time or catch_up is CatchUp.ONE:
        return Fire(latest, following)
    return Skip(following)
