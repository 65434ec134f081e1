"""What the door of schedules needs from the services."""

from collections.abc import Sequence
from typing import Protocol

from app.domain.schedules import NewSchedule, Schedule, ScheduleChange, ScheduleView


class Schedules(Protocol):
    """Schedules of tenants, each found by its id or its name."""

    async def create(self, asked: NewSchedule, /) -> ScheduleView:
        """A new one, committed when this returns.

        Raises:
            InvalidRequest: its expression or its time zone cannot be read.
            ModelNotFound, ScheduleExists, TooManySchedules, StorageFull: as they say.
        """
        ...

    async def list(self, tenant: str, /) -> Sequence[ScheduleView]:
        """All of a tenant, by name."""
        ...

    async def get(self, key: str, tenant: str, /) -> ScheduleView:
        """This one.

        Raises:
            ScheduleNotFound: there is none.
        """
        ...

    async def change(self, key: str, tenant: str, asked: ScheduleChange, /) -> ScheduleView:
        """This one, as it is from now on.

        Raises:
            ScheduleNotFound, InvalidRequest, ModelNotFound, StorageFull: as they say.
        """
        ...

    async def delete(self, key: str, tenant: str, /) -> Schedule:
        """This one, which is gone.

        Raises:
            ScheduleNotFound, StorageFull: as they say.
        """
        ...
