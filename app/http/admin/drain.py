"""``/admin/v1``: drain, resume, status."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec
from litestar import Controller, MediaType, Request, Response, get, post
from litestar.di import NamedDependency

from app.domain.errors import DrainNotFound, InvalidRequest, UnsupportedParameter
from app.http.admin.schema import (
    DRAIN_S_DEFAULT,
    DRAIN_S_MAX,
    DrainObject,
    DrainRequest,
    StatusObject,
    drain_object,
    restart_object,
    worker_object,
)
from app.http.body import read_body
from app.http.documentation import Body, Documented, answers
from app.http.explaining import decode
from app.http.ports import Administration, Draining, Overview
from app.http.query import Query

HttpRequest = Request[Any, Any, Any]

BODY_BYTES_MAX: Final = 65_536

EXPECTED: Final = {
    "mode": "one of finish, checkpoint, cancel",
    "timeout_s": f"a number of seconds from 0 to {DRAIN_S_MAX}",
    "scope": "'server'",
}

SERVER: Final = "server"
_LATER_SCOPE: Final = re.compile(r"(?:model|worker):.+", re.DOTALL)

_DECODER: Final = msgspec.json.Decoder(DrainRequest)
_JSON: Final = msgspec.json.Encoder()


class AdminDoor:
    """Turns operators' requests into calls of the services."""

    def __init__(
        self, draining: Draining, administration: Administration, overview: Overview
    ) -> None:
        self._draining = draining
        self._administration = administration
        self._overview = overview

    async def drain(self, request: HttpRequest) -> Response[bytes]:
        """A drain, begun or joined.

        Raises:
            InvalidRequest: naming the field that cannot be used.
        """
        Query(request)
        asked = decode(_DECODER, await read_body(request, BODY_BYTES_MAX), EXPECTED.get)
        _check_scope(asked.scope)
        timeout_s = DRAIN_S_DEFAULT if asked.timeout_s is None else asked.timeout_s
        return _answer(drain_object(await self._draining.start(asked.mode, timeout_s)), 202)

    def progress(self, request: HttpRequest) -> Response[bytes]:
        """The latest drain.

        Raises:
            DrainNotFound: there was none.
        """
        Query(request)
        drain = self._draining.status()
        if drain is None:
            raise DrainNotFound
        return _answer(drain_object(drain))

    async def resume(self, request: HttpRequest) -> Response[bytes]:
        """Work is taken and handed out again."""
        Query(request)
        await self._draining.resume()
        return _answer(self._status())

    def status(self, request: HttpRequest) -> Response[bytes]:
        """How the server stands."""
        Query(request)
        return _answer(self._status())

    def _status(self) -> StatusObject:
        drain, readiness = self._draining.status(), self._overview.readiness()
        return StatusObject(
            draining=self._draining.draining,
            ready=readiness.ready,
            reason=readiness.reason,
            drain=None if drain is None else drain_object(drain),
            workers=[worker_object(worker) for worker in self._administration.workers()],
            restarts=[restart_object(model) for model in self._administration.restarts()],
        )


@dataclass
class DrainOperation(Documented):
    """`POST /admin/v1/drain`."""

    body: ClassVar[Body] = DrainRequest
    note: ClassVar[str] = "`scope` is `server`. Nothing is said of `timeout_s`: 30 seconds."


class AdminController(Controller):
    """Operating the server."""

    path = "/admin/v1"
    tags = ("Admin",)

    @post(
        "/drain",
        operation_id="startDrain",
        summary="Drain the server",
        operation_class=DrainOperation,
        status_code=202,
        responses=answers(DrainObject, 202, 400),
    )
    async def drain(self, request: HttpRequest, admin: NamedDependency[AdminDoor]) -> Response[Any]:
        """Closes foreground admission and dispatch, and brings running work to rest. Durable jobs
        are still taken, and wait. A drain that runs already is joined."""
        return await admin.drain(request)

    @get(
        "/drain",
        operation_id="retrieveDrain",
        summary="The latest drain",
        responses=answers(DrainObject, 200, 404),
    )
    async def progress(
        self, request: HttpRequest, admin: NamedDependency[AdminDoor]
    ) -> Response[Any]:
        """How far the latest drain has come."""
        return admin.progress(request)

    @post(
        "/resume",
        operation_id="resume",
        summary="Resume after a drain",
        status_code=200,
        responses=answers(StatusObject, 200),
    )
    async def resume(
        self, request: HttpRequest, admin: NamedDependency[AdminDoor]
    ) -> Response[Any]:
        """Admits and dispatches again; no error when nothing was drained."""
        return await admin.resume(request)

    @get(
        "/status",
        operation_id="retrieveStatus",
        summary="How the server stands",
        responses=answers(StatusObject, 200),
    )
    async def status(
        self, request: HttpRequest, admin: NamedDependency[AdminDoor]
    ) -> Response[Any]:
        """Whether work is taken and handed out, and if not, why; the workers, and whether more of
        them may start."""
        return admin.status(request)


def _check_scope(scope: str | None) -> None:
    if scope in (None, SERVER):
        return
    if _LATER_SCOPE.fullmatch(scope or ""):
        text = "Unsupported parameter: 'scope' can only be 'server' so far."
        raise UnsupportedParameter(text, param="scope")
    raise InvalidRequest(f"Invalid 'scope': it must be {EXPECTED['scope']}.", param="scope")


def _answer(value: msgspec.Struct, status: int = 200) -> Response[bytes]:
    return Response(_JSON.encode(value), status_code=status, media_type=MediaType.JSON)
