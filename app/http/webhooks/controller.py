"""``/v1/webhook_endpoints``: the paths, and what the OpenAPI document says of them."""

from typing import Any

from litestar import Controller, Request, Response, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.http.documentation import answers
from app.http.webhooks.documentation import (
    CreateOperation,
    DeliveriesOperation,
    EndpointOperation,
    EndpointsOperation,
    ReplayOperation,
    RotateOperation,
    SampleOperation,
    UpdateOperation,
)
from app.http.webhooks.door import WebhooksDoor
from app.http.webhooks.schema import (
    DeliveryList,
    EndpointDeleted,
    EndpointList,
    EndpointObject,
    EventTypeList,
    ReplayResult,
    TestResult,
)

HttpRequest = Request[Any, Any, Any]


class WebhookEndpointsController(Controller):
    """Endpoints."""

    path = "/v1/webhook_endpoints"
    tags = ("Webhooks",)

    @post(
        operation_id="createWebhookEndpoint",
        summary="Create a webhook endpoint",
        operation_class=CreateOperation,
        status_code=200,
        responses=answers(EndpointObject, 200, 400, 422, 507),
    )
    async def create(
        self, request: HttpRequest, webhooks: NamedDependency[WebhooksDoor]
    ) -> Response[Any]:
        """Somebody who is sent how jobs, workers and drains end."""
        return await webhooks.create(request)

    @get(
        operation_id="listWebhookEndpoints",
        summary="List webhook endpoints",
        operation_class=EndpointsOperation,
        responses=answers(EndpointList, 200, 400, 404),
    )
    async def list_endpoints(
        self, request: HttpRequest, webhooks: NamedDependency[WebhooksDoor]
    ) -> Response[Any]:
        """All endpoints and how they stand, the latest first."""
        return await webhooks.all(request)

    @get(
        "/{name:str}",
        operation_id="retrieveWebhookEndpoint",
        summary="Retrieve a webhook endpoint",
        operation_class=EndpointOperation,
        responses=answers(EndpointObject, 200, 400, 404),
    )
    async def retrieve(
        self, request: HttpRequest, name: FromPath[str], webhooks: NamedDependency[WebhooksDoor]
    ) -> Response[Any]:
        """One endpoint and how it stands."""
        return await webhooks.get(request, name)

    @post(
        "/{name:str}",
        operation_id="updateWebhookEndpoint",
        summary="Change, enable or disable a webhook endpoint",
        operation_class=UpdateOperation,
        status_code=200,
        responses=answers(EndpointObject, 200, 400, 404, 507),
    )
    async def update(
        self, request: HttpRequest, name: FromPath[str], webhooks: NamedDependency[WebhooksDoor]
    ) -> Response[Any]:
        """What is left out stays as it is."""
        return await webhooks.update(request, name)

    @delete(
        "/{name:str}",
        operation_id="deleteWebhookEndpoint",
        summary="Delete a webhook endpoint",
        operation_class=EndpointOperation,
        status_code=200,
        responses=answers(EndpointDeleted, 200, 400, 404),
    )
    async def remove(
        self, request: HttpRequest, name: FromPath[str], webhooks: NamedDependency[WebhooksDoor]
    ) -> Response[Any]:
        """It is sent nothing more; what was not delivered is forgotten."""
        return await webhooks.delete(request, name)

    @post(
        "/{name:str}/rotate_secret",
        operation_id="rotateWebhookSecret",
        summary="Rotate a signing secret",
        operation_class=RotateOperation,
        status_code=200,
        responses=answers(EndpointObject, 200, 400, 404, 507),
    )
    async def rotate(
        self, request: HttpRequest, name: FromPath[str], webhooks: NamedDependency[WebhooksDoor]
    ) -> Response[Any]:
        """A new secret."""
        return await webhooks.rotate(request, name)

    @post(
        "/{name:str}/test",
        operation_id="testWebhookEndpoint",
        summary="Send a sample",
        operation_class=SampleOperation,
        status_code=200,
        responses=answers(TestResult, 200, 400, 404, 422),
    )
    async def test(
        self, request: HttpRequest, name: FromPath[str], webhooks: NamedDependency[WebhooksDoor]
    ) -> Response[Any]:
        """Whether the endpoint answers, and what."""
        return await webhooks.test(request, name)

    @post(
        "/{name:str}/replay",
        operation_id="replayWebhooks",
        summary="Send again",
        operation_class=ReplayOperation,
        status_code=200,
        responses=answers(ReplayResult, 200, 400, 404, 507),
    )
    async def replay(
        self, request: HttpRequest, name: FromPath[str], webhooks: NamedDependency[WebhooksDoor]
    ) -> Response[Any]:
        """An event, all from an event on, or what was parked."""
        return await webhooks.replay(request, name)

    @get(
        "/{name:str}/deliveries",
        operation_id="listWebhookDeliveries",
        summary="List deliveries",
        operation_class=DeliveriesOperation,
        responses=answers(DeliveryList, 200, 400, 404),
    )
    async def deliveries(
        self, request: HttpRequest, name: FromPath[str], webhooks: NamedDependency[WebhooksDoor]
    ) -> Response[Any]:
        """What was sent, with its latest tries."""
        return await webhooks.deliveries(request, name)


class WebhookEventTypesController(Controller):
    """Event types."""

    path = "/v1/webhook_event_types"
    tags = ("Webhooks",)

    @get(
        operation_id="listWebhookEventTypes",
        summary="List event types",
        responses=answers(EventTypeList, 200, 400),
    )
    async def event_types(
        self, request: HttpRequest, webhooks: NamedDependency[WebhooksDoor]
    ) -> Response[Any]:
        """What can be sent."""
        return webhooks.event_types(request)
