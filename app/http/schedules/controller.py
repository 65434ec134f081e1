"""``/v1/schedules``: the paths, and what the OpenAPI document says of them."""

from typing import Any

from litestar import Controller, Request, Response, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.http.documentation import answers
from app.http.schedules.documentation import ChangeOperation, CreateOperation, ScheduleOperation
from app.http.schedules.door import SchedulesDoor
from app.http.schedules.schema import ScheduleDeleted, ScheduleList, ScheduleObject

HttpRequest = Request[Any, Any, Any]


class SchedulesController(Controller):
    """Schedules."""

    path = "/v1/schedules"
    tags = ("Schedules",)

    @post(
        operation_id="createSchedule",
        summary="Create a schedule",
        operation_class=CreateOperation,
        status_code=201,
        responses=answers(ScheduleObject, 201, 400, 404, 413, 422, 507),
    )
    async def create(
        self, request: HttpRequest, schedules: NamedDependency[SchedulesDoor]
    ) -> Response[Any]:
        """A job that the clock submits, by a cron expression or at fixed intervals."""
        return await schedules.create(request)

    @get(
        operation_id="listSchedules",
        summary="List schedules",
        operation_class=ScheduleOperation,
        responses=answers(ScheduleList, 200, 400),
    )
    async def list_schedules(
        self, request: HttpRequest, schedules: NamedDependency[SchedulesDoor]
    ) -> Response[Any]:
        """All schedules of a tenant, by name."""
        return await schedules.list(request)

    @get(
        "/{schedule:str}",
        operation_id="retrieveSchedule",
        summary="Retrieve a schedule",
        operation_class=ScheduleOperation,
        responses=answers(ScheduleObject, 200, 400, 404),
    )
    async def retrieve(
        self,
        request: HttpRequest,
        schedule: FromPath[str],
        schedules: NamedDependency[SchedulesDoor],
    ) -> Response[Any]:
        """The schedule with this id or name, when it is due next and what it fired last."""
        return await schedules.get(request, schedule)

    @patch(
        "/{schedule:str}",
        operation_id="changeSchedule",
        summary="Change, pause or resume a schedule",
        operation_class=ChangeOperation,
        responses=answers(ScheduleObject, 200, 400, 404, 413, 507),
    )
    async def change(
        self,
        request: HttpRequest,
        schedule: FromPath[str],
        schedules: NamedDependency[SchedulesDoor],
    ) -> Response[Any]:
        """What is given is so from now on. A paused schedule fires nothing, and makes up for
        nothing when it goes on."""
        return await schedules.change(request, schedule)

    @delete(
        "/{schedule:str}",
        operation_id="deleteSchedule",
        summary="Delete a schedule",
        operation_class=ScheduleOperation,
        status_code=200,
        responses=answers(ScheduleDeleted, 200, 400, 404, 507),
    )
    async def remove(
        self,
        request: HttpRequest,
        schedule: FromPath[str],
        schedules: NamedDependency[SchedulesDoor],
    ) -> Response[Any]:
        """It fires no more; the jobs that it submitted stay."""
        return await schedules.delete(request, schedule)
