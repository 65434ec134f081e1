"""What can be done with schedules: made, looked at, changed, paused, deleted."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from app.domain.cadence import NoSuchCron, cadence_of
from app.domain.errors import InternalError, InvalidRequest, StorageDamaged, StorageFull
from app.domain.schedule_errors import ScheduleExists, ScheduleNotFound, TooManySchedules
from app.domain.schedules import (
    SCHEDULES_MAX,
    Cadence,
    NewSchedule,
    Schedule,
    ScheduleChange,
    ScheduleState,
    ScheduleView,
    Template,
    Timing,
)
from app.services.clock import Clock
from app.services.models import Models
from app.services.timetable import Timetable
from app.storage.database import Database
from app.storage.errors import PayloadDamaged, StoreFull
from app.storage.operations import Committed, Operation
from app.storage.schedules import (
    change_schedule,
    delete_schedule,
    insert_schedule,
    load_schedule,
    load_schedules,
    load_template,
)
from shared.ids import IdMint

CHANGES_MAX: Final = 5
"""Times that a change is tried again because the schedule fired in between."""


class Schedules:
    """The verbs of schedules; ``timetable`` fires them."""

    def __init__(
        self, database: Database, timetable: Timetable, models: Models, mint: IdMint, clock: Clock
    ) -> None:
        self._readers = database.readers
        self._writer = database.writer
        self._timetable = timetable
        self._models = models
        self._mint = mint
        self._clock = clock

    async def create(self, asked: NewSchedule) -> ScheduleView:
        """A new schedule; committed when this returns.

        Raises:
            InvalidRequest: its expression or its time zone cannot be read.
            ModelNotFound: there is no such model.
            ScheduleExists: the tenant has one of this name.
            TooManySchedules: there are as many as there may be.
            StorageFull: the disk is full.
        """
        now = self._clock.now()
        timing = Timing(
            anchor=now,
            cron=asked.cron,
            every_s=asked.every_s,
            timezone=asked.timezone,
            catch_up=asked.catch_up,
        )
        due = _cadence(timing).after(now)
        self._models.require(asked.template.draft.model)
        new = Schedule(
            id=self._mint.schedule(),
            tenant=asked.template.draft.tenant,
            name=asked.name,
            state=ScheduleState.PAUSED if asked.paused else ScheduleState.ACTIVE,
            timing=timing,
            next_due=None if asked.paused else due,
            last_due=None,
            last_job=None,
            fired=0,
            created_at=now,
            updated_at=now,
        )
        if not await self._written(insert_schedule(new, asked.template, SCHEDULES_MAX)):
            found = await load_schedule(self._readers, new.tenant, new.name)
            raise TooManySchedules if found is None else ScheduleExists
        self._timetable.set(new)
        return self._view(new, asked.template)

    async def list(self, tenant: str) -> Sequence[ScheduleView]:
        """All schedules of a tenant, by name, without what they submit."""
        return [self._view(found, None) for found in await load_schedules(self._readers, tenant)]

    async def get(self, key: str, tenant: str) -> ScheduleView:
        """The schedule with this id or name.

        Raises:
            ScheduleNotFound: the tenant has none.
        """
        found = await self._find(key, tenant)
        template = await self._template(found)
        if template is None:
            raise ScheduleNotFound
        return self._view(found, template)

    async def change(self, key: str, tenant: str, asked: ScheduleChange) -> ScheduleView:
        """The schedule as it is from now on. With another timing, or going on after a pause, its
        next due is the first from now on.

        Raises:
            ScheduleNotFound: the tenant has none.
            InvalidRequest: its expression or its time zone cannot be read, or the job is another
                tenant's.
            ModelNotFound: there is no such model.
            StorageFull: the disk is full.
        """
        for _ in range(CHANGES_MAX):
            found = await self._find(key, tenant)
            template = asked.template or await self._template(found)
            if template is None:
                raise ScheduleNotFound
            if asked.template is not None:
                self._check_job(asked.template, found)
            new = self._changed(found, asked)
            if await self._written(change_schedule(found, new, template)):
                self._timetable.set(new)
                return self._view(new, template)
        raise InternalError

    async def delete(self, key: str, tenant: str) -> Schedule:
        """The schedule is gone; the jobs that it submitted stay.

        Raises:
            ScheduleNotFound: the tenant has none.
            StorageFull: the disk is full.
        """
        found = await self._find(key, tenant)
        if not await self._written(delete_schedule(found.id)):
            raise ScheduleNotFound
        self._timetable.drop(found.id)
        return found

    def _changed(self, old: Schedule, asked: ScheduleChange) -> Schedule:
        now = self._clock.now()
        timing = _retimed(old.timing, asked, now)
        cadence = _cadence(timing)
        paused = old.state is ScheduleState.PAUSED if asked.paused is None else asked.paused
        next_due = old.next_due
        if paused:
            next_due = None
        elif next_due is None or timing.anchor != old.timing.anchor:
            next_due = cadence.after(max(now, old.last_due or now))
        return msgspec.structs.replace(
            old,
            timing=timing,
            state=ScheduleState.PAUSED if paused else ScheduleState.ACTIVE,
            next_due=next_due,
            updated_at=now,
        )

    def _view(self, schedule: Schedule, template: Template | None) -> ScheduleView:
        trouble = self._timetable.trouble(schedule.id)
        return ScheduleView(schedule=schedule, template=template, trouble=trouble)

    def _check_job(self, template: Template, found: Schedule) -> None:
        if template.draft.tenant != found.tenant:
            text = f"A schedule stays with its tenant, which is {found.tenant!r}."
            raise InvalidRequest(f"Invalid 'job.tenant': {text}", param="job.tenant")
        self._models.require(template.draft.model)

    async def _find(self, key: str, tenant: str) -> Schedule:
        found = await load_schedule(self._readers, tenant, key)
        if found is None:
            raise ScheduleNotFound
        return found

    async def _template(self, schedule: Schedule) -> Template | None:
        try:
            return await load_template(self._readers, schedule.id)
        except (PayloadDamaged, msgspec.MsgspecError) as error:
            raise StorageDamaged("What the schedule submits is damaged; delete it.") from error

    async def _written(self, operation: Operation) -> bool:
        try:
            return isinstance(await self._writer.submit(operation), Committed)
        except StoreFull as error:
            raise StorageFull from error


def _retimed(old: Timing, asked: ScheduleChange, now: datetime) -> Timing:
    """The timing with what is asked for in it; anchored anew where its dues are others."""
    new = msgspec.structs.replace(
        old,
        timezone=asked.timezone or old.timezone,
        catch_up=asked.catch_up or old.catch_up,
    )
    if asked.cron is not None or asked.every_s is not None:
        new = msgspec.structs.replace(new, cron=asked.cron, every_s=asked.every_s)
    dues = ("cron", "every_s", "timezone")
    if any(getattr(new, name) != getattr(old, name) for name in dues):
        return msgspec.structs.replace(new, anchor=now)
    return new


def _cadence(timing: Timing) -> Cadence:
    """The dues of a timing.

    Raises:
        InvalidRequest: its expression or its time zone cannot be read.
    """
    try:
        zone = ZoneInfo(timing.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        text = f"There is no time zone {timing.timezone!r}; name one as in 'Europe/Berlin'."
        raise InvalidRequest(f"Invalid 'timezone': {text}", param="timezone") from None
    try:
        return cadence_of(timing, zone)
    except NoSuchCron as error:
        text = f"{error}. Write it as in '30 6 * * MON-FRI'."
        raise InvalidRequest(f"Invalid 'cron': {text}", param="cron") from None
