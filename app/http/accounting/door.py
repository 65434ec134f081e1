"""``/v1/admin/prepare-stop`` and ``/accounting``: for callers on this machine, and nobody else."""

from typing import Any, Final

import msgspec
from litestar import MediaType, Request, Response

from app.domain.errors import InternalError, InvalidRequest, JobServerError
from app.http.accounting.ports import Accounting
from app.http.accounting.schema import (
    ABORT_S_DEFAULT,
    DRAIN_S_DEFAULT,
    ID_CHARS_MAX,
    RECEIPTS_MAX,
    WAIT_S_MAX,
    AccountingAck,
    AccountingAcked,
    AccountingAckedOne,
    AckedObject,
    AckedReceipt,
    PendingAnswer,
    StopRequest,
    receipt_object,
    stopped_object,
)
from app.http.body import read_body
from app.http.errors import (
    ErrorBody,
    answer_job_error,
    error_answer,
    retry_headers,
    status_of,
    unforeseen,
)
from app.http.explaining import decode
from app.http.loopback import require_loopback
from app.http.query import Query
from shared.ids import ReportId

BODY_BYTES_MAX: Final = 262_144
PENDING_DEFAULT: Final = 100

HttpRequest = Request[Any, Any, Any]

_SECONDS: Final = f"a number of seconds from 0 to {WAIT_S_MAX}"
_ID: Final = f"1 to {ID_CHARS_MAX} letters, digits and any of ._-"
EXPECTED: Final = {
    "worker": "the id of a worker's generation",
    "drain_timeout_s": _SECONDS,
    "abort_timeout_s": _SECONDS,
    "force": "a boolean",
    "receipts": f"an array of 1 to {RECEIPTS_MAX} objects with 'id' and 'revision'",
    "receiptId": _ID,
    "revision": "an integer from 1",
}

_STOP: Final = msgspec.json.Decoder(StopRequest)
_ACK: Final = msgspec.json.Decoder(AccountingAck)
_JSON: Final = msgspec.json.Encoder()


class StopRefused(msgspec.Struct, frozen=True, kw_only=True):
    """Why a worker was not brought to rest; nothing was signalled."""

    error: ErrorBody
    drain_complete: bool = False
    engine_preserved: bool = True


class AccountingDoor:
    """Turns supervisors' requests into calls of the services."""

    def __init__(self, accounting: Accounting) -> None:
        self._accounting = accounting

    async def prepare_stop(self, request: HttpRequest) -> Response[bytes]:
        """A worker's receipt, once its work has come to rest.

        Raises:
            JobServerError: the request cannot be used, or the worker is not at rest.
        """
        require_loopback(request)
        Query(request)
        body = await read_body(request, BODY_BYTES_MAX)
        asked = decode(_STOP, body, EXPECTED.get) if body else StopRequest()
        drain_s, abort_s = asked.drain_timeout_s, asked.abort_timeout_s
        receipt = await self._accounting.prepare_stop(
            asked.worker,
            DRAIN_S_DEFAULT if drain_s is None else drain_s,
            ABORT_S_DEFAULT if abort_s is None else abort_s,
            force=bool(asked.force),
        )
        told = stopped_object(receipt)
        if told is None:
            raise InternalError("The worker's receipt can no longer be read.")
        return _answer(told)

    async def pending(self, request: HttpRequest) -> Response[bytes]:
        """Receipts that were not acknowledged.

        Raises:
            LoopbackOnly: the caller is elsewhere.
        """
        require_loopback(request)
        limit = Query(request, "limit").integer("limit", 1, RECEIPTS_MAX) or PENDING_DEFAULT
        found = [receipt_object(receipt) for receipt in await self._accounting.pending(limit)]
        return _answer(PendingAnswer(receipts=[one for one in found if one is not None]))

    async def ack(self, request: HttpRequest) -> Response[bytes]:
        """Receipts that are booked.

        Raises:
            JobServerError: the request cannot be used.
        """
        require_loopback(request)
        Query(request)
        asked = decode(_ACK, await read_body(request, BODY_BYTES_MAX), EXPECTED.get)
        if (asked.receipts is None) == (asked.receipt_id is None):
            text = "Send either 'receipts' or 'receiptId'."
            raise InvalidRequest(text, param="receipts")
        if asked.receipts is None:
            return await self._ack_one(ReportId(asked.receipt_id or ""), asked.revision)
        return _answer(AccountingAcked(receipts=[await self._acked(r) for r in asked.receipts]))

    async def _acked(self, booked: AckedReceipt) -> AckedObject:
        done = await self._accounting.ack(ReportId(booked.id), booked.revision)
        return AckedObject(id=done.id, revision=done.revision, state=done.state)

    async def _ack_one(self, receipt_id: ReportId, revision: int | None) -> Response[bytes]:
        done = await self._accounting.ack(receipt_id, revision)
        return _answer(
            AccountingAckedOne(
                acked=done.state != "unknown",
                already=done.state == "already",
                stale=done.state == "stale",
                receipt_id=done.id,
                revision=done.revision,
            )
        )


def refuse_stop(request: HttpRequest, error: Exception) -> Response[bytes]:
    """Why a worker was not brought to rest. Whatever failed, foreseen or not, whoever asked must
    know that they may ask again: nothing was ended."""
    if not isinstance(error, JobServerError):
        return _answer(StopRefused(error=unforeseen(request, error).error), 500)
    status = status_of(error)
    if status < 500:
        return answer_job_error(request, error)
    refused = StopRefused(error=error_answer(error).error)
    return _answer(refused, status, retry_headers(error))


def _answer(
    value: msgspec.Struct, status: int = 200, headers: dict[str, str] | None = None
) -> Response[bytes]:
    return Response(
        _JSON.encode(value),
        status_code=status,
        headers=headers or {},
        media_type=MediaType.JSON,
    )
