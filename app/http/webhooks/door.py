"""What can be done with webhook endpoints: each request is read, handed on, and answered."""

from typing import Any, Final, TypeVar

import msgspec
from litestar import MediaType, Request, Response

from app.domain.errors import InvalidRequest
from app.domain.feed import CLASSES_DEFAULT, KINDS, Selection
from app.domain.job import JobClass
from app.domain.webhook_errors import EndpointNotFound
from app.domain.webhooks import EVENT_TYPES, Change, DeliveryState
from app.http.body import read_body
from app.http.explaining import decode
from app.http.query import Query
from app.http.reports.asking import check_tags, tenant_in, tenant_of
from app.http.webhooks.ports import EndpointView, WebhookPorts
from app.http.webhooks.schema import (
    NAME_CHARS_MAX,
    URL_CHARS_MAX,
    DeliveryList,
    EndpointDeleted,
    EndpointList,
    EndpointObject,
    EndpointRequest,
    EndpointUpdate,
    EventTypeList,
    ReplayRequest,
    ReplayResult,
    RotateRequest,
    TestRequest,
    delivery_object,
    endpoint_object,
    test_result,
)

BODY_BYTES_MAX: Final = 65_536
PAGE_DEFAULT: Final = 20
PAGE_MAX: Final = 100
EXPECTED: Final = {
    "name": f"1 to {NAME_CHARS_MAX} characters",
    "url": f"an address of 1 to {URL_CHARS_MAX} characters",
    "event_types": f"an array of {', '.join(EVENT_TYPES)}",
    "event_type": f"one of {', '.join(EVENT_TYPES)}",
    "from": "'earliest' or 'latest' for an endpoint, an event's id for a replay",
    "event": "an event's id",
    "parked": "true",
    "classes": "an array of interactive, background, batch",
    "tags": "an object of up to 16 strings",
    "enabled": "a boolean",
    "include_attached": "a boolean",
    "keep_old_secret_active_for_24_hours": "a boolean",
}
_CREATE: Final = msgspec.json.Decoder(EndpointRequest)
_UPDATE: Final = msgspec.json.Decoder(EndpointUpdate)
_ROTATE: Final = msgspec.json.Decoder(RotateRequest)
_TEST: Final = msgspec.json.Decoder(TestRequest)
_REPLAY: Final = msgspec.json.Decoder(ReplayRequest)
_JSON: Final = msgspec.json.Encoder()

HttpRequest = Request[Any, Any, Any]
Asked = TypeVar("Asked", bound=msgspec.Struct)


class WebhooksDoor:
    """Turns requests about webhooks into calls of the services."""

    def __init__(self, ports: WebhookPorts) -> None:
        self._feed = ports.feed
        self._endpoints = ports.endpoints
        self._deliveries = ports.deliveries

    async def create(self, request: HttpRequest) -> Response[bytes]:
        """A new endpoint, with its secret.

        Raises:
            JobServerError: when it cannot be made so.
        """
        Query(request)
        asked = await _read(request, _CREATE)
        check_tags(asked.tags or {}, "tags")
        selection = Selection(
            tenant=asked.tenant,
            kinds=KINDS if asked.tenant is None else ("job",),
            classes=tuple(map(JobClass, asked.classes or CLASSES_DEFAULT)),
            tags=asked.tags or {},
            include_attached=bool(asked.include_attached),
        )
        types: list[str] = list(asked.event_types)
        made = await self._endpoints.create(asked.name, asked.url, types, selection, asked.from_)
        return await self._one(made, secret=True)

    async def all(self, request: HttpRequest) -> Response[bytes]:
        """A page of endpoints.

        Raises:
            EndpointNotFound: there is none called ``after``.
        """
        query = Query(request, "tenant", "after", "limit")
        limit = query.integer("limit", 1, PAGE_MAX) or PAGE_DEFAULT
        found = await self._endpoints.all(tenant_in(query))
        after = query.one("after")
        if after is not None:
            names = [view.endpoint.id for view in found]
            if after not in names:
                raise EndpointNotFound
            found = found[names.index(after) + 1 :]
        data = [await self._object(view) for view in found[:limit]]
        first, last = (data[0].id, data[-1].id) if data else (None, None)
        more = len(found) > limit
        return _answer(EndpointList(data=data, first_id=first, last_id=last, has_more=more))

    async def get(self, request: HttpRequest, name: str) -> Response[bytes]:
        """One endpoint.

        Raises:
            EndpointNotFound: there is none.
        """
        return await self._one(await self._endpoints.get(name, tenant_of(request)))

    async def update(self, request: HttpRequest, name: str) -> Response[bytes]:
        """One endpoint, otherwise.

        Raises:
            JobServerError: when it cannot be so.
        """
        tenant, asked = tenant_of(request), await _read(request, _UPDATE)
        change = Change(
            name=asked.name,
            url=asked.url,
            event_types=None if asked.event_types is None else tuple(asked.event_types),
            enabled=asked.enabled,
        )
        return await self._one(await self._endpoints.update(name, tenant, change))

    async def delete(self, request: HttpRequest, name: str) -> Response[bytes]:
        """One endpoint less.

        Raises:
            EndpointNotFound: there is none.
        """
        await self._endpoints.delete(name, tenant_of(request))
        return _answer(EndpointDeleted(id=name))

    async def rotate(self, request: HttpRequest, name: str) -> Response[bytes]:
        """One endpoint, with a new secret.

        Raises:
            EndpointNotFound: there is none.
        """
        tenant, asked = tenant_of(request), await _read(request, _ROTATE)
        keep_old = asked.keep_old_secret_active_for_24_hours
        rotated = await self._endpoints.rotate(name, tenant, keep_old=keep_old)
        return await self._one(rotated, secret=True)

    async def test(self, request: HttpRequest, name: str) -> Response[bytes]:
        """What the endpoint answers to a sample.

        Raises:
            EndpointNotFound: there is none.
            Unanswered: it answers nothing.
        """
        tenant, asked = tenant_of(request), await _read(request, _TEST)
        return _answer(test_result(await self._endpoints.test(name, tenant, asked.event_type)))

    async def replay(self, request: HttpRequest, name: str) -> Response[bytes]:
        """Something is sent again.

        Raises:
            InvalidRequest: it is not said what.
            EndpointNotFound, EventNotFound: there is no such thing.
        """
        tenant, asked = tenant_of(request), await _read(request, _REPLAY)
        given = [value for value in (asked.event, asked.from_, asked.parked) if value is not None]
        if len(given) != 1:
            raise InvalidRequest("Send one of 'event', 'from' and 'parked'.", param="event")
        count: int | None = None
        if asked.event is not None:
            await self._deliveries.replay_event(name, tenant, asked.event)
            count = 1
        elif asked.from_ is not None:
            await self._deliveries.replay_from(name, tenant, asked.from_)
        else:
            count = await self._deliveries.replay_parked(name, tenant)
        return _answer(ReplayResult(webhook_endpoint_id=name, replayed=count))

    async def deliveries(self, request: HttpRequest, name: str) -> Response[bytes]:
        """A page of what was sent.

        Raises:
            EndpointNotFound, EventNotFound: there is no such endpoint, no event ``after``.
        """
        query = Query(request, "tenant", "state", "after", "limit")
        limit = query.integer("limit", 1, PAGE_MAX) or PAGE_DEFAULT
        state = query.one("state")
        if state is not None and state not in tuple(DeliveryState):
            text = f"Invalid 'state': it must be one of {', '.join(DeliveryState)}."
            raise InvalidRequest(text, param="state")
        found = await self._deliveries.page(
            name, tenant_in(query), state, query.one("after"), limit + 1
        )
        data = [delivery_object(delivery) for delivery in found[:limit]]
        first, last = (data[0].id, data[-1].id) if data else (None, None)
        more = len(found) > limit
        return _answer(DeliveryList(data=data, first_id=first, last_id=last, has_more=more))

    def event_types(self, request: HttpRequest) -> Response[bytes]:
        """What can be sent."""
        Query(request)
        return _answer(EventTypeList(data=EVENT_TYPES))

    async def _one(self, view: EndpointView, *, secret: bool = False) -> Response[bytes]:
        return _answer(await self._object(view, secret=secret))

    async def _object(self, view: EndpointView, *, secret: bool = False) -> EndpointObject:
        state = await self._feed.state()
        hint = self._endpoints.hint(view.endpoint.secret)
        return endpoint_object(view, self._feed.epoch, state, hint, secret=secret)


async def _read(request: HttpRequest, decoder: "msgspec.json.Decoder[Asked]") -> Asked:
    """The body; OpenAI's clients send none where everything in it may be left out."""
    body = await read_body(request, BODY_BYTES_MAX)
    return decode(decoder, body or b"{}", EXPECTED.get)


def _answer(value: msgspec.Struct, status: int = 200) -> Response[bytes]:
    return Response(_JSON.encode(value), status_code=status, media_type=MediaType.JSON)
