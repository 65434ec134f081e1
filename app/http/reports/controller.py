"""``/v1/reports`` and ``/v1/consumers``: the paths, and what the OpenAPI document says of them."""

from typing import Any

from litestar import Controller, Request, Response, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.http.documentation import answers
from app.http.reports.documentation import (
    AckOperation,
    ConsumerOperation,
    CreateOperation,
    PageOperation,
    StreamOperation,
)
from app.http.reports.door import ReportsDoor
from app.http.reports.schema import ConsumerDeleted, ConsumerList, ConsumerObject, ReportPage
from app.http.reports.streaming import ReportStreamDoor

HttpRequest = Request[Any, Any, Any]


class ReportsController(Controller):
    """Reports."""

    path = "/v1/reports"
    tags = ("Reports",)

    @get(
        operation_id="listReports",
        summary="Read reports",
        operation_class=PageOperation,
        responses=answers(ReportPage, 200, 400, 404, 410),
    )
    async def page(
        self, request: HttpRequest, reports: NamedDependency[ReportsDoor]
    ) -> Response[Any]:
        """How jobs, workers and drains ended, in the order in which that was committed."""
        return await reports.page(request)

    @post(
        "/ack",
        operation_id="acknowledgeReports",
        summary="Acknowledge reports",
        operation_class=AckOperation,
        status_code=200,
        responses=answers(ConsumerObject, 200, 400, 404, 410, 412, 507),
    )
    async def ack(
        self, request: HttpRequest, reports: NamedDependency[ReportsDoor]
    ) -> Response[Any]:
        """The consumer is done with everything up to a place, and is not shown it again."""
        return await reports.ack(request)

    @get(
        "/stream",
        operation_id="followReports",
        summary="Follow reports",
        operation_class=StreamOperation,
        responses=answers(None, 200, 400, 404, 410),
    )
    async def stream(
        self, request: HttpRequest, report_stream: NamedDependency[ReportStreamDoor]
    ) -> Response[Any]:
        """Reports as they are committed."""
        return report_stream.answer(request)


class ConsumersController(Controller):
    """Consumers."""

    path = "/v1/consumers"
    tags = ("Reports",)

    @post(
        operation_id="createConsumer",
        summary="Create a consumer",
        operation_class=CreateOperation,
        status_code=201,
        responses=answers(ConsumerObject, 201, 200, 400, 422, 507),
    )
    async def create(
        self, request: HttpRequest, reports: NamedDependency[ReportsDoor]
    ) -> Response[Any]:
        """A reader of reports whose place the server keeps."""
        return await reports.create(request)

    @get(
        operation_id="listConsumers",
        summary="List consumers",
        operation_class=ConsumerOperation,
        responses=answers(ConsumerList, 200, 400),
    )
    async def list_consumers(
        self, request: HttpRequest, reports: NamedDependency[ReportsDoor]
    ) -> Response[Any]:
        """All consumers and where they stand."""
        return await reports.list(request)

    @get(
        "/{name:str}",
        operation_id="retrieveConsumer",
        summary="Retrieve a consumer",
        operation_class=ConsumerOperation,
        responses=answers(ConsumerObject, 200, 400, 404),
    )
    async def retrieve(
        self, request: HttpRequest, name: FromPath[str], reports: NamedDependency[ReportsDoor]
    ) -> Response[Any]:
        """One consumer and where it stands, also when it was parked."""
        return await reports.get(request, name)

    @delete(
        "/{name:str}",
        operation_id="deleteConsumer",
        summary="Delete a consumer",
        operation_class=ConsumerOperation,
        status_code=200,
        responses=answers(ConsumerDeleted, 200, 400, 404),
    )
    async def remove(
        self, request: HttpRequest, name: FromPath[str], reports: NamedDependency[ReportsDoor]
    ) -> Response[Any]:
        """Its place is kept no longer; reports stay for the others."""
        return await reports.delete(request, name)
