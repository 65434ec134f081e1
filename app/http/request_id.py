"""The outermost layer: a name, a duration and a log line for every request.

Plain ASGI and nothing buffered. It lies around Litestar's whole application rather than among its
middleware, which does not run for unknown paths.
"""

import re
import time
from typing import Any, Final

import structlog
from litestar.datastructures import Headers
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from shared.ids import IdMint, JobId

CLIENT_REQUEST_ID_CHARS_MAX: Final = 512
CLIENT_CLOSED_REQUEST: Final = 499
"""Logged for a client that left before it was answered; never sent."""

QUIET_PATHS: Final = frozenset({"/livez", "/readyz", "/metrics", "/health"})
"""Asked every few seconds by machines; logged at debug level."""

_PRINTABLE: Final = re.compile(rb"[\x21-\x7e][\x20-\x7e]*")
_STATE_KEY: Final = "mlxq_request_id"
_JOB_KEY: Final = "mlxq_job"

_log = structlog.stdlib.get_logger("http")


def request_id_of(scope: Scope) -> str:
    """The id that this request's answer carries in ``x-request-id``."""
    return str(scope["state"].get(_STATE_KEY, ""))


def name_job(scope: Scope, job_id: JobId) -> None:
    """Lets the log line of this request say which job it made."""
    scope["state"][_JOB_KEY] = job_id


class RequestId:
    """Names every request, and says in the log how it was answered. Bodies are never logged."""

    def __init__(self, app: ASGIApp, mint: IdMint) -> None:
        self._app = app
        self._mint = mint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or whatever else the server hands over."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send, self._mint.request())
        try:
            await self._app(scope, receive, exchange.send)
        finally:
            exchange.log()


class _Exchange:
    """One request on its way."""

    def __init__(self, scope: HTTPScope, send: Send, request_id: str) -> None:
        scope["state"][_STATE_KEY] = request_id
        self._scope = scope
        self._send = send
        self._id = request_id
        self._client_id = _client_request_id(scope)
        self._status = CLIENT_CLOSED_REQUEST
        self._complete = False
        # Litestar rewrites the path of a scope while it routes.
        self._path = scope["path"]
        self._started = time.monotonic()

    async def send(self, message: Message) -> None:
        """Passes a message on; the first one gets our headers."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message["headers"] = [*message["headers"], *self._headers()]
        elif message["type"] == "http.response.body":
            self._complete = not message.get("more_body", False)
        await self._send(message)

    def log(self) -> None:
        """The access log's line, when all is sent or lost."""
        write = _log.debug if self._path in QUIET_PATHS else _log.info
        write(
            "request",
            method=self._scope["method"],
            path=self._path,
            status=self._status,
            complete=self._complete,
            duration_ms=self._elapsed_ms(),
            request_id=self._id,
            **self._facts(),
        )

    def _elapsed_ms(self) -> int:
        return round((time.monotonic() - self._started) * 1000)

    def _headers(self) -> list[tuple[bytes, bytes]]:
        headers = [
            (b"x-request-id", self._id.encode()),
            (b"openai-version", b"2020-10-01"),
            (b"openai-processing-ms", b"%d" % self._elapsed_ms()),
        ]
        if self._client_id is not None:
            headers.append((b"x-client-request-id", self._client_id))
        return headers

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {}
        if (job := self._scope["state"].get(_JOB_KEY)) is not None:
            facts["job"] = job
        if self._client_id is not None:
            facts["client_request_id"] = self._client_id.decode("ascii")
        if retries := Headers.from_scope(self._scope).get("x-stainless-retry-count"):
            facts["client_retry"] = retries[:8]
        return facts


def _client_request_id(scope: HTTPScope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"x-client-request-id":
            fits = len(value) <= CLIENT_REQUEST_ID_CHARS_MAX and _PRINTABLE.fullmatch(value)
            return value if fits else None
    return None
