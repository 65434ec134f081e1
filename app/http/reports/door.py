"""What can be done with reports and consumers: each request is read, handed on, and answered."""

from typing import Any, Final

import msgspec
from litestar import MediaType, Request, Response

from app.domain.errors import InvalidRequest
from app.domain.feed import Consumer, Page
from app.http.body import read_body
from app.http.query import Query
from app.http.reports.asking import (
    Reading,
    decode_ack,
    decode_consumer,
    page_asked,
    tenant_of,
)
from app.http.reports.ports import ReportPorts
from app.http.reports.schema import (
    ConsumerDeleted,
    ConsumerList,
    CursorObject,
    ReportPage,
    consumer_object,
    report_object,
)

BODY_BYTES_MAX: Final = 65_536

HttpRequest = Request[Any, Any, Any]

_JSON: Final = msgspec.json.Encoder()


class ReportsDoor:
    """Turns requests about reports into calls of the services."""

    def __init__(self, ports: ReportPorts) -> None:
        self._feed = ports.feed
        self._consumers = ports.consumers

    async def create(self, request: HttpRequest) -> Response[bytes]:
        """A consumer, made or found as it is.

        Raises:
            JobServerError: when it cannot be made so.
        """
        Query(request)
        asked, selection = decode_consumer(await read_body(request, BODY_BYTES_MAX))
        consumer, new = await self._consumers.create(asked.name, selection, asked.from_)
        return await self._one(consumer, 201 if new else 200)

    async def list(self, request: HttpRequest) -> Response[bytes]:
        """All consumers.

        Raises:
            InvalidRequest: the query makes no sense.
        """
        found = await self._consumers.list(tenant_of(request))
        state = await self._feed.state()
        data = [consumer_object(consumer, self._feed.epoch, state) for consumer in found]
        return _answer(ConsumerList(data=data))

    async def get(self, request: HttpRequest, name: str) -> Response[bytes]:
        """One consumer.

        Raises:
            ConsumerNotFound: there is none.
        """
        return await self._one(await self._consumers.get(name, tenant_of(request)))

    async def delete(self, request: HttpRequest, name: str) -> Response[bytes]:
        """One consumer less.

        Raises:
            ConsumerNotFound: there is none.
        """
        await self._consumers.delete(name, tenant_of(request))
        return _answer(ConsumerDeleted(name=name))

    async def page(self, request: HttpRequest) -> Response[bytes]:
        """A page of reports.

        Raises:
            JobServerError: when there is none for this reader.
        """
        asked = page_asked(request)
        page = await self._read(asked)
        epoch = self._feed.epoch
        data = [report_object(report, epoch) for report in page.reports]
        next_ = CursorObject(epoch, page.next)
        return _answer(ReportPage(data=data, next=next_, has_more=not page.end))

    async def ack(self, request: HttpRequest) -> Response[bytes]:
        """The consumer, where it stands by now.

        Raises:
            JobServerError: when it was not moved.
        """
        tenant = tenant_of(request)
        asked = decode_ack(await read_body(request, BODY_BYTES_MAX))
        expected = None if asked.from_ is None else asked.from_.cursor()
        through = asked.through.cursor()
        return await self._one(await self._consumers.ack(asked.consumer, tenant, through, expected))

    async def _read(self, asked: Reading) -> Page:
        if asked.consumer is None:
            after = 0 if asked.after is None else await self._feed.check(asked.after)
            return await self._feed.page(asked.selection, after, asked.limit)
        if asked.after is not None:
            text = "A consumer reads on from what it has acknowledged; leave 'after' out."
            raise InvalidRequest(text, param="after")
        _, page = await self._consumers.page(asked.consumer, asked.tenant, asked.limit)
        return page

    async def _one(self, consumer: Consumer, status: int = 200) -> Response[bytes]:
        state = await self._feed.state()
        return _answer(consumer_object(consumer, self._feed.epoch, state), status)


def _answer(value: msgspec.Struct, status: int = 200) -> Response[bytes]:
    return Response(_JSON.encode(value), status_code=status, media_type=MediaType.JSON)
