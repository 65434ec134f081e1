"""``/v1/admin/prepare-stop`` and ``/accounting``: the paths, and what the document says of them."""

from dataclasses import dataclass
from typing import Any, ClassVar

from litestar import Controller, Request, Response, get, post
from litestar.di import NamedDependency
from litestar.openapi.spec import Parameter

from app.domain.errors import JobServerError
from app.http.accounting.door import AccountingDoor, refuse_stop
from app.http.accounting.schema import (
    DRAIN_S_DEFAULT,
    AccountingAck,
    AccountingAcked,
    PendingAnswer,
    StoppedObject,
    StopRequest,
)
from app.http.documentation import Body, Documented, answers, query_parameter

HttpRequest = Request[Any, Any, Any]


@dataclass
class StopOperation(Documented):
    """`POST /v1/admin/prepare-stop`."""

    body: ClassVar[Body] = StopRequest
    note: ClassVar[str] = (
        "The worker gets no more work; background jobs go on elsewhere later, foreground ones may "
        f"take `drain_timeout_s` ({DRAIN_S_DEFAULT:g}) and are then cut, each with a word. When it "
        "has come to rest and its receipt is durable this answers, and its process may be ended. "
        "`force` gives what is known after the times are over. `worker` may be left out where "
        "there is but one. To ask again gives the same receipt."
    )


@dataclass
class AckOperation(Documented):
    """`POST /accounting/ack`."""

    body: ClassVar[Body] = AccountingAck


@dataclass
class PendingOperation(Documented):
    """`GET /accounting/pending`."""

    asked: ClassVar[tuple[Parameter, ...]] = (query_parameter("limit", "Receipts at most."),)


class AccountingController(Controller):
    """Receipts of workers, for whoever supervises this server."""

    tags = ("Accounting",)

    @post(
        "/v1/admin/prepare-stop",
        operation_id="prepareStop",
        summary="Prepare a worker's stop",
        operation_class=StopOperation,
        status_code=200,
        responses=answers(StoppedObject, 200, 400, 403, 404, 503),
        exception_handlers={JobServerError: refuse_stop, Exception: refuse_stop},
    )
    async def prepare_stop(
        self, request: HttpRequest, accounting: NamedDependency[AccountingDoor]
    ) -> Response[Any]:
        """Closes a worker, lets its work come to rest, and answers with its receipt."""
        return await accounting.prepare_stop(request)

    @get(
        "/accounting/pending",
        operation_id="listPendingReceipts",
        summary="Receipts to be booked",
        operation_class=PendingOperation,
        responses=answers(PendingAnswer, 200, 403),
    )
    async def pending(
        self, request: HttpRequest, accounting: NamedDependency[AccountingDoor]
    ) -> Response[Any]:
        """Receipts that were not acknowledged, oldest first."""
        return await accounting.pending(request)

    @post(
        "/accounting/ack",
        operation_id="acknowledgeReceipts",
        summary="Receipts are booked",
        operation_class=AckOperation,
        status_code=200,
        responses=answers(AccountingAcked, 200, 400, 403, 507),
    )
    async def ack(
        self, request: HttpRequest, accounting: NamedDependency[AccountingDoor]
    ) -> Response[Any]:
        """Receipts were booked under their id and revision, and are pending no longer."""
        return await accounting.ack(request)
