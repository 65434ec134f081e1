"""What can be done with schedules: each request is read, handed to the service, and answered."""

import secrets
from typing import Any, Final

import msgspec
from litestar import MediaType, Request, Response

from app.domain.draft import DRAWN_SEED_BITS
from app.domain.errors import ModelNotFound
from app.domain.schedules import ScheduleView
from app.http.body import read_body
from app.http.native.query import tenant_of
from app.http.query import Query
from app.http.schedules.asking import decode_change, decode_schedule
from app.http.schedules.ports import Schedules
from app.http.schedules.render import schedule_object
from app.http.schedules.schema import ScheduleDeleted, ScheduleList

BODY_BYTES_MAX: Final = 1_048_576
"""Of a schedule: what it submits is kept, and read at every due."""

HttpRequest = Request[Any, Any, Any]

_JSON: Final = msgspec.json.Encoder()


class SchedulesDoor:
    """Turns requests about schedules into calls of the service."""

    def __init__(self, schedules: Schedules) -> None:
        self._schedules = schedules

    async def create(self, request: HttpRequest) -> Response[bytes]:
        """A new schedule.

        Raises:
            JobServerError: when it is refused.
        """
        Query(request)
        asked = decode_schedule(await read_body(request, BODY_BYTES_MAX), _draw_seed)
        try:
            return _one(await self._schedules.create(asked), 201)
        except ModelNotFound as error:
            raise _in_job(error) from None

    async def list(self, request: HttpRequest) -> Response[bytes]:
        """All schedules of a tenant.

        Raises:
            InvalidRequest: the query makes no sense.
        """
        found = await self._schedules.list(tenant_of(request))
        return _answer(ScheduleList(data=[schedule_object(view) for view in found]))

    async def get(self, request: HttpRequest, key: str) -> Response[bytes]:
        """One schedule.

        Raises:
            ScheduleNotFound: there is none.
        """
        return _one(await self._schedules.get(key, tenant_of(request)))

    async def change(self, request: HttpRequest, key: str) -> Response[bytes]:
        """One schedule, as it is from now on.

        Raises:
            JobServerError: when it was not changed.
        """
        tenant = tenant_of(request)
        asked = decode_change(await read_body(request, BODY_BYTES_MAX), _draw_seed, tenant)
        try:
            return _one(await self._schedules.change(key, tenant, asked))
        except ModelNotFound as error:
            raise _in_job(error) from None

    async def delete(self, request: HttpRequest, key: str) -> Response[bytes]:
        """One schedule less.

        Raises:
            ScheduleNotFound: there is none.
        """
        gone = await self._schedules.delete(key, tenant_of(request))
        return _answer(ScheduleDeleted(id=gone.id, name=gone.name))


def _in_job(error: ModelNotFound) -> ModelNotFound:
    return ModelNotFound(error.message, param="job.model")


def _draw_seed() -> int:
    return secrets.randbits(DRAWN_SEED_BITS)


def _one(view: ScheduleView, status: int = 200) -> Response[bytes]:
    return _answer(schedule_object(view), status)


def _answer(value: msgspec.Struct, status: int = 200) -> Response[bytes]:
    return Response(_JSON.encode(value), status_code=status, media_type=MediaType.JSON)
