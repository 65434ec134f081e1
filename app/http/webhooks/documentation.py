"""What the OpenAPI document says of requests about webhooks."""

from dataclasses import dataclass
from typing import ClassVar, Final

from litestar.openapi.spec import OpenAPIType, Parameter, Schema

from app.http.documentation import Body, Documented, query_parameter
from app.http.webhooks.door import PAGE_DEFAULT, PAGE_MAX
from app.http.webhooks.schema import (
    EndpointRequest,
    EndpointUpdate,
    ReplayRequest,
    RotateRequest,
    TestRequest,
)

TENANT: Final = query_parameter(
    "tenant", "Whose endpoint it is; the operator's if nothing is said."
)
LIMIT: Final = query_parameter(
    "limit",
    "How many on a page.",
    Schema(type=OpenAPIType.INTEGER, minimum=1, maximum=PAGE_MAX, default=PAGE_DEFAULT),
)


@dataclass
class EndpointOperation(Documented):
    """Operations on one endpoint."""

    asked: ClassVar[tuple[Parameter, ...]] = (TENANT,)


@dataclass
class EndpointsOperation(Documented):
    """The list of endpoints."""

    asked: ClassVar[tuple[Parameter, ...]] = (
        TENANT,
        LIMIT,
        query_parameter("after", "The last endpoint of the page before."),
    )


@dataclass
class CreateOperation(Documented):
    """`POST /v1/webhook_endpoints`."""

    body: ClassVar[Body] = EndpointRequest
    note: ClassVar[str] = (
        "`signing_secret` is told here and after a rotation, never again. Addresses that are not "
        "public are refused unless `webhooks.allowed_networks` has them."
    )


@dataclass
class UpdateOperation(EndpointOperation):
    """`POST /v1/webhook_endpoints/{id}`."""

    body: ClassVar[Body] = EndpointUpdate
    note: ClassVar[str] = "One that is enabled again goes on where it stood."


@dataclass
class RotateOperation(EndpointOperation):
    """`POST /v1/webhook_endpoints/{id}/rotate_secret`."""

    body: ClassVar[Body] = RotateRequest


@dataclass
class SampleOperation(EndpointOperation):
    """`POST /v1/webhook_endpoints/{id}/test`."""

    body: ClassVar[Body] = TestRequest
    note: ClassVar[str] = "Sent once, and not kept; `data.sample` is true in it."


@dataclass
class ReplayOperation(EndpointOperation):
    """`POST /v1/webhook_endpoints/{id}/replay`."""

    body: ClassVar[Body] = ReplayRequest
    note: ClassVar[str] = (
        "Under the same ids, with the same bytes: receivers that key on them skip it."
    )


@dataclass
class DeliveriesOperation(Documented):
    """`GET /v1/webhook_endpoints/{id}/deliveries`."""

    asked: ClassVar[tuple[Parameter, ...]] = (
        TENANT,
        LIMIT,
        query_parameter("state", "Only `waiting`, `delivered` or `parked`."),
        query_parameter("after", "The last event of the page before."),
    )
