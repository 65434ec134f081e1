"""The clock that submits jobs: one timer, for whatever schedule is due next.

A due is counted down on the monotonic clock from when it was last looked at, so a clock that is set
fires nothing early. Firing is a submission like any other; the job, the row of the due and the
schedule's next due are one transaction (``storage/schedules.py``). What dies before it leaves the
due as it was, and the next start finds it. A due that is refused, since too many jobs wait or the
disk is full, is tried again after 1, 2, 4 … 60 s, unless a later one takes its place.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import structlog

from app.domain.cadence import cadence_of
from app.domain.draft import DRAWN_SEED_BITS, DueJob, JobDraft
from app.domain.errors import InternalError, JobServerError, ShuttingDown, StorageDamaged
from app.domain.retry import BACKOFF_MAX_S, backoff_s
from app.domain.schedules import Cadence, Fire, Schedule, Skip, Template, Trouble, Wait, plan
from app.services.clock import Clock, not_before
from app.services.submission import AlreadyFired, Submission
from app.services.tasks import Tasks
from app.storage.database import Database
from app.storage.errors import PayloadDamaged, StoreError
from app.storage.schedules import load_schedule, load_schedules, load_template, skip_dues
from shared.ids import ScheduleId

_SEED_BYTES: Final = 8
_UNREADABLE: Final = (ZoneInfoNotFoundError, ValueError, OSError)
"""What is raised where this machine does not know a time zone that another one did."""

_log = structlog.get_logger("timetable")


@dataclass(slots=True, eq=False)
class _Armed:
    """An active schedule. ``at`` is when it is looked at next, on the monotonic clock; ``waited``
    says that its due was still to come when it was armed, so that it is due then, whatever the
    other clock says. ``tries`` that were refused, and ``trouble``, why the last one was."""

    schedule: Schedule
    cadence: Cadence
    due: datetime
    at: float
    waited: bool
    tries: int = 0
    trouble: Trouble | None = field(default=None)


class Timetable:
    """Fires what is due.

    Args:
        entropy: returns that many random bytes, for the seeds of jobs that name none.
    """

    def __init__(
        self,
        database: Database,
        submission: Submission,
        tasks: Tasks,
        clock: Clock,
        entropy: Callable[[int], bytes],
    ) -> None:
        self._readers = database.readers
        self._writer = database.writer
        self._submission = submission
        self._tasks = tasks
        self._clock = clock
        self._entropy = entropy
        self._armed: dict[ScheduleId, _Armed] = {}
        self._unreadable: dict[ScheduleId, Trouble] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._stopped = True
        self.fired = 0

    def __len__(self) -> int:
        return len(self._armed)

    async def start(self) -> None:
        """Look at every schedule, and fire what was missed as each of them says."""
        self._stopped = False
        for schedule in await load_schedules(self._readers):
            self.set(schedule)

    def stop(self) -> None:
        """Fire nothing more."""
        self._stopped = True
        self._disarm()

    def set(self, schedule: Schedule) -> None:
        """The schedule is as this from now on."""
        if schedule.next_due is None:
            self.drop(schedule.id)
            return
        try:
            cadence = cadence_of(schedule.timing, ZoneInfo(schedule.timing.timezone))
        except _UNREADABLE as error:
            _log.error("schedule_unreadable", schedule=schedule.id, error=str(error))
            self.drop(schedule.id)
            self._unreadable[schedule.id] = Trouble("invalid_value", str(error))
            return
        self._unreadable.pop(schedule.id, None)
        wait_s = (schedule.next_due - self._clock.now()).total_seconds()
        self._armed[schedule.id] = _Armed(
            schedule=schedule,
            cadence=cadence,
            due=schedule.next_due,
            at=self._clock.monotonic() + max(0.0, wait_s),
            waited=wait_s > 0,
        )
        self._arm()

    def drop(self, schedule: ScheduleId) -> None:
        """The schedule fires no more."""
        self._armed.pop(schedule, None)
        self._unreadable.pop(schedule, None)
        self._arm()

    def trouble(self, schedule: ScheduleId) -> Trouble | None:
        """Why this schedule's due could not be fired yet."""
        armed = self._armed.get(schedule)
        return self._unreadable.get(schedule) if armed is None else armed.trouble

    def _arm(self) -> None:
        """Set the timer for what is due next; while something fires, that is done behind it."""
        self._disarm()
        if self._busy or self._stopped or not self._armed:
            return
        wait_s = min(armed.at for armed in self._armed.values()) - self._clock.monotonic()
        self._timer = asyncio.get_running_loop().call_later(not_before(wait_s), self._due)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        self._busy = True
        self._tasks.spawn(self._pass(), "timetable")

    async def _pass(self) -> None:
        """Fire what is due, one after the other, the longest due first."""
        try:
            now = self._clock.monotonic()
            due = [armed for armed in self._armed.values() if armed.at <= now]
            for armed in sorted(due, key=lambda found: found.at):
                if not self._stopped and self._armed.get(armed.schedule.id) is armed:
                    await self._look_safely(armed)
        finally:
            self._busy = False
            self._arm()

    async def _look_safely(self, armed: _Armed) -> None:
        """What the store cannot do now is tried again, like what is refused; and whatever else goes
        wrong with it, a schedule is not looked at again at once."""
        armed.at = self._clock.monotonic() + BACKOFF_MAX_S
        try:
            await self._look(armed)
        except StoreError as error:
            _log.error("due_not_stored", schedule=armed.schedule.id, error=str(error))
            self._refused(armed, InternalError())

    async def _look(self, armed: _Armed) -> None:
        schedule, cadence = armed.schedule, armed.cadence
        if armed.waited:
            planned = Fire(armed.due, cadence.after(armed.due))
        else:
            planned = plan(armed.due, self._clock.now(), cadence, schedule.timing.catch_up)
        match planned:
            case Fire():
                await self._fire(armed, planned)
            case Skip(following):
                _log.warning("dues_missed", schedule=schedule.id, due=str(armed.due))
                await self._writer.submit(skip_dues(schedule.id, armed.due, following))
                await self._read_again(armed)
            case Wait():
                self.set(schedule)

    async def _fire(self, armed: _Armed, planned: Fire) -> None:
        schedule = armed.schedule
        due = DueJob(
            schedule=schedule.id,
            expected=armed.due,
            due=planned.due,
            following=planned.following,
        )
        try:
            template = await load_template(self._readers, schedule.id)
            if template is not None:
                ticket = await self._submission.submit(self._draft(template, due))
                ticket.follower.close()
                self.fired += 1
                _log.info("schedule_fired", schedule=schedule.id, job=ticket.job_id)
        except AlreadyFired:
            _log.info("due_moved", schedule=schedule.id, due=str(planned.due))
        except (PayloadDamaged, msgspec.MsgspecError):
            self._refused(armed, StorageDamaged("What it submits is damaged; change its 'job'."))
            return
        except ShuttingDown:
            self.stop()
            return
        except JobServerError as error:
            self._refused(armed, error)
            return
        await self._read_again(armed)

    def _draft(self, template: Template, due: DueJob) -> JobDraft:
        draft = msgspec.structs.replace(template.draft, due=due)
        if template.seeded:
            return draft
        drawn = int.from_bytes(self._entropy(_SEED_BYTES), "big")
        seed = drawn % (1 << DRAWN_SEED_BITS)
        sampling = msgspec.structs.replace(draft.request.sampling, seed=seed)
        request = msgspec.structs.replace(draft.request, sampling=sampling)
        return msgspec.structs.replace(draft, request=request)

    def _refused(self, armed: _Armed, error: JobServerError) -> None:
        armed.tries += 1
        armed.waited = False
        armed.trouble = Trouble(error.code, error.message)
        armed.at = self._clock.monotonic() + backoff_s(armed.tries, 0.0)
        _log.warning("due_refused", schedule=armed.schedule.id, code=error.code, tries=armed.tries)

    async def _read_again(self, armed: _Armed) -> None:
        """What the store says of it by now counts, unless somebody has set it meanwhile."""
        old = armed.schedule
        schedule = await load_schedule(self._readers, old.tenant, old.id)
        if self._armed.get(old.id) is not armed:
            return
        if schedule is None:
            self.drop(old.id)
        else:
            self.set(schedule)
