"""What is refused about schedules."""

from typing import ClassVar

from app.domain.errors import JobServerError


class ScheduleNotFound(JobServerError):
    """There is no such schedule."""

    code: ClassVar[str] = "schedule_not_found"


class ScheduleExists(JobServerError):
    """There is a schedule of this name; change or delete it, or take another name."""

    code: ClassVar[str] = "schedule_exists"


class TooManySchedules(JobServerError):
    """There are as many schedules as there may be; delete one first."""

    code: ClassVar[str] = "too_many_schedules"
