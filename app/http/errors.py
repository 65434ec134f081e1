"""Errors as answers: class to status once, OpenAI's shape, and when a client should come again.

Every error has the four keys of OpenAI's ``Error`` schema. Official clients retry 408, 409, 429 and
5xx by themselves, wait as long as ``Retry-After`` says up to two minutes, and obey
``x-should-retry`` above all; so an answer that will not change says so.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog
from litestar import MediaType, Request, Response
from litestar.exceptions import HTTPException

from app.domain import errors, report_errors, schedule_errors, webhook_errors
from app.domain.errors import JobServerError
from app.http.disconnect import ClientGone
from app.http.request_id import CLIENT_CLOSED_REQUEST, request_id_of

HttpRequest = Request[Any, Any, Any]

STATUSES: Final[dict[type[JobServerError], int]] = {
    JobServerError: 500,
    errors.InvalidRequest: 400,
    errors.MalformedJson: 400,
    errors.MissingParameter: 400,
    errors.UnknownParameter: 400,
    errors.UnsupportedParameter: 400,
    errors.StringTooLong: 400,
    errors.PromptTooLong: 400,
    errors.TemplateRefused: 400,
    errors.JobNotFound: 404,
    errors.ModelNotFound: 404,
    errors.DrainNotFound: 404,
    report_errors.LoopbackOnly: 403,
    report_errors.ConsumerNotFound: 404,
    report_errors.WorkerNotFound: 404,
    report_errors.ConsumerParked: 410,
    # Official clients send what meets a 409 again by themselves.
    report_errors.CursorMoved: 412,
    report_errors.ConsumerExists: 422,
    report_errors.FeedEpochChanged: 400,
    report_errors.CursorAhead: 400,
    report_errors.StopIncomplete: 503,
    webhook_errors.EndpointNotFound: 404,
    webhook_errors.EventNotFound: 404,
    webhook_errors.UrlRefused: 400,
    webhook_errors.TooManyEndpoints: 422,
    webhook_errors.Unanswered: 422,
    schedule_errors.ScheduleNotFound: 404,
    schedule_errors.ScheduleExists: 422,
    schedule_errors.TooManySchedules: 422,
    errors.RequestTooLarge: 413,
    # 421 is "this server does not answer for that host"; 403 would send people to look for a key.
    errors.HostNotAllowed: 421,
    errors.IdempotencyConflict: 422,
    errors.DependencyFailed: 424,
    errors.QueueFull: 429,
    errors.InternalError: 500,
    errors.EngineError: 500,
    errors.WorkerCrashed: 500,
    errors.ModelChanged: 500,
    errors.ResumeDiverged: 500,
    errors.TooManyLosses: 500,
    errors.StorageDamaged: 500,
    errors.ServerOverloaded: 503,
    errors.ModelLoading: 503,
    errors.ModelUnavailable: 503,
    errors.Draining: 503,
    errors.ShuttingDown: 503,
    errors.StreamInterrupted: 503,
    errors.PrepareTimeout: 504,
    errors.AttemptTimeout: 504,
    errors.DeadlineExceeded: 504,
    errors.StorageFull: 507,
}

RETRY_AFTER_S: Final[dict[type[JobServerError], float]] = {
    errors.QueueFull: 1.0,
    errors.ServerOverloaded: 1.0,
    errors.ModelLoading: 5.0,
    errors.Draining: 5.0,
    errors.ShuttingDown: 5.0,
}
"""When to come again if the error itself does not say."""

NO_RETRY: Final = (
    errors.WorkerCrashed,
    errors.TooManyLosses,
    errors.StorageDamaged,
    errors.PrepareTimeout,
    errors.AttemptTimeout,
    errors.DeadlineExceeded,
    errors.StorageFull,
)
"""The same request would meet the same end: a repeated poison would only kill another worker, and
a full disk is not emptied in seconds."""

LONG_WAIT_S: Final = 60.0
"""From here on a client gains nothing by holding its caller while it waits to try again."""

_TYPES: Final = {409: "conflict", 429: "rate_limit_error"}
_HTTP_CODES: Final = {408: "timeout", 405: "method_not_supported", 413: "request_too_large"}
_JSON: Final = msgspec.json.Encoder()

_log = structlog.stdlib.get_logger("http")


class FeedPlace(msgspec.Struct, frozen=True):
    """A place in the feed of reports."""

    epoch: str
    seq: int


class QueuePosition(msgspec.Struct, frozen=True):
    """How many requests wait already."""

    position: int


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, in OpenAI's words."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None
    queue: QueuePosition | msgspec.UnsetType = msgspec.UNSET
    place: FeedPlace | msgspec.UnsetType = msgspec.UNSET


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of every answer that is not a success."""

    error: ErrorBody


def status_of(error: JobServerError) -> int:
    """The HTTP status of this error's class, or of the nearest mapped one above it."""
    return next(STATUSES[cls] for cls in type(error).__mro__ if cls in STATUSES)


def error_answer(error: JobServerError) -> ErrorAnswer:
    """The body for one of our own errors; also the in-band one of a stream."""
    message, queue = error.message, msgspec.UNSET
    if isinstance(error, errors.QueueFull) and error.position:
        message = f"{message} {error.position} requests wait already."
        queue = QueuePosition(error.position)
    return ErrorAnswer(
        ErrorBody(
            message=message,
            type=_type_of(status_of(error)),
            param=error.param,
            code=error.code,
            queue=queue,
            place=_place(error),
        )
    )


def _place(error: JobServerError) -> FeedPlace | msgspec.UnsetType:
    """Where a reader of reports stands, or may begin."""
    if not isinstance(error, report_errors.ConsumerParked | report_errors.CursorMoved):
        return msgspec.UNSET
    place = error.place
    return msgspec.UNSET if place is None else FeedPlace(place.epoch, place.seq)


def retry_headers(error: JobServerError) -> dict[str, str]:
    """What tells a client when, or that it should not, send the request again."""
    if isinstance(error, NO_RETRY):
        return {"x-should-retry": "false"}
    wait_s = error.retry_after_s
    if wait_s is None:
        wait_s = next((RETRY_AFTER_S[c] for c in type(error).__mro__ if c in RETRY_AFTER_S), None)
    if wait_s is None:
        given_up = isinstance(error, errors.ModelUnavailable)
        return {"x-should-retry": "false"} if given_up else {}
    headers = {"retry-after": str(max(1, math.ceil(wait_s)))}
    if wait_s >= LONG_WAIT_S:
        headers["x-should-retry"] = "false"
    return headers


def answer_job_error(_request: HttpRequest, error: JobServerError) -> Response[bytes]:
    """One of our own errors, before any byte of the answer was sent."""
    return _response(error_answer(error), status_of(error), retry_headers(error))


def answer_http_error(request: HttpRequest, error: HTTPException) -> Response[bytes]:
    """What Litestar refuses by itself: unknown paths, wrong methods, malformed requests."""
    status = error.status_code
    if status >= 500:
        return answer_unforeseen(request, error)
    body = ErrorBody(
        message=_http_message(request, error), type=_type_of(status), code=_HTTP_CODES.get(status)
    )
    return _response(ErrorAnswer(body), status, error.headers or {})


def answer_unforeseen(request: HttpRequest, error: Exception) -> Response[bytes]:
    """A fault of ours: the caller gets an id to name, the log gets the rest."""
    return _response(unforeseen(request, error), 500, {})


def unforeseen(request: HttpRequest, error: Exception) -> ErrorAnswer:
    """What is told of a fault of ours; the rest is logged."""
    request_id = request_id_of(request.scope)
    _log.error("request_failed", request_id=request_id, exc_info=error)
    text = f"The server failed in a way it did not foresee (request {request_id})."
    body = ErrorBody(message=text, type="server_error", code=errors.InternalError.code)
    return ErrorAnswer(body)


def answer_nobody(_request: HttpRequest, _error: ClientGone) -> Response[bytes]:
    """The client is gone; the status is for the access log alone."""
    return Response(b"", status_code=CLIENT_CLOSED_REQUEST, media_type=MediaType.TEXT)


EXCEPTION_HANDLERS: Final[dict[int | type[Exception], Any]] = {
    JobServerError: answer_job_error,
    ClientGone: answer_nobody,
    HTTPException: answer_http_error,
    Exception: answer_unforeseen,
}


def _response(answer: ErrorAnswer, status: int, headers: Mapping[str, str]) -> Response[bytes]:
    return Response(
        _JSON.encode(answer),
        status_code=status,
        headers=dict(headers),
        media_type=MediaType.JSON,
    )


def _type_of(status: int) -> str:
    default = "server_error" if status >= 500 or status == 408 else "invalid_request_error"
    return _TYPES.get(status, default)


def _http_message(request: HttpRequest, error: HTTPException) -> str:
    method, path = request.scope["method"], request.scope["path"]
    if error.status_code == 404:
        return f"Unknown path: {method} {path}"
    if error.status_code == 405:
        return f"{method} is not supported on {path}"
    return error.detail
