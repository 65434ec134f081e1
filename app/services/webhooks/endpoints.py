"""Webhook endpoints as they are asked for: made, changed, tried out, sent to again."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog

from app.domain.errors import InvalidRequest, StorageFull
from app.domain.feed import Consumer, ConsumerState, Selection, Start
from app.domain.webhook_errors import (
    EndpointNotFound,
    TooManyEndpoints,
    Unanswered,
)
from app.domain.webhooks import (
    ENDPOINTS_MAX,
    Change,
    Endpoint,
    EndpointState,
    sample,
)
from app.services.clock import Clock
from app.services.webhooks.addressing import check_url
from app.services.webhooks.senders import Senders
from app.services.webhooks.signing import hint, new_secret, signed
from app.storage.consumers import insert_step, load_consumers
from app.storage.database import Database
from app.storage.deliveries import (
    count_deliveries,
)
from app.storage.errors import StoreFull
from app.storage.operations import Committed, Operation
from app.storage.webhooks import (
    delete_endpoint,
    insert_endpoint,
    load_endpoints,
    update_endpoint,
)

OVERLAP: Final = timedelta(hours=24)
"""For how long an old secret signs beside the new one, if it is to."""

DISABLED: Final = "it was disabled on request"

_log = structlog.get_logger("webhooks")


class EndpointView(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint and how it stands.

    Attributes:
        consumer: which reports it is shown, and where it stands in the feed.
        waiting: events that were tried and will be again.
        parked: events that were given up.
    """

    endpoint: Endpoint
    consumer: Consumer
    waiting: int
    parked: int


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint answered to a sample."""

    endpoint: str
    type: str
    status: int
    took_ms: int


class Endpoints:
    """Does what is asked. A tenant of None is the operator."""

    def __init__(
        self, database: Database, senders: Senders, clock: Clock, mint: Callable[[], str]
    ) -> None:
        self._readers = database.readers
        self._writer = database.writer
        self._senders = senders
        self._clock = clock
        self._mint = mint
        self._one_at_a_time = asyncio.Lock()

    async def create(
        self,
        name: str,
        url: str,
        event_types: Sequence[str],
        selection: Selection,
        start: Start,
    ) -> EndpointView:
        """A new endpoint, which is sent what comes, or what is kept as well.

        Raises:
            UrlRefused: nothing may be sent to this URL.
            TooManyEndpoints: there are ``ENDPOINTS_MAX``.
            StorageFull: the disk is full.
        """
        _check_types(event_types, selection.tenant)
        await check_url(url, self._senders.permits())
        now = self._clock.now()
        endpoint = Endpoint(
            id=self._mint(),
            tenant=selection.tenant,
            name=name,
            url=url,
            state=EndpointState.ENABLED,
            reason=None,
            event_types=tuple(dict.fromkeys(event_types)),
            secret=new_secret(),
            old_secret=None,
            old_secret_until=None,
            created_at=now,
            updated_at=now,
        )
        async with self._one_at_a_time:
            if len(await load_endpoints(self._readers)) >= ENDPOINTS_MAX:
                raise TooManyEndpoints
            await self._write(insert_endpoint(endpoint, selection, start))
            self._senders.begin(endpoint.id)
        _log.info("webhook_created", endpoint=endpoint.id, url=url)
        return await self.get(endpoint.id, selection.tenant)

    async def all(self, tenant: str | None) -> list[EndpointView]:
        """All of a tenant's, the latest first."""
        found = await load_endpoints(self._readers)
        consumers = {one.name: one for one in await load_consumers(self._readers)}
        counts = await count_deliveries(self._readers)
        views = [
            EndpointView(
                endpoint=endpoint,
                consumer=consumers[endpoint.consumer],
                waiting=counts.get(endpoint.id, {}).get("waiting", 0),
                parked=counts.get(endpoint.id, {}).get("parked", 0),
            )
            for endpoint in reversed(found)
            if endpoint.consumer in consumers
        ]
        return [view for view in views if tenant in (None, view.endpoint.tenant)]

    async def get(self, name: str, tenant: str | None) -> EndpointView:
        """This one.

        Raises:
            EndpointNotFound: this tenant has none that is called so.
        """
        found = [view for view in await self.all(tenant) if view.endpoint.id == name]
        if not found:
            raise EndpointNotFound
        return found[0]

    async def update(self, name: str, tenant: str | None, change: Change) -> EndpointView:
        """It is otherwise from now on. One that is enabled again goes on where it stood, or with
        the oldest report that is kept where its place was not.

        Raises:
            EndpointNotFound: this tenant has none that is called so.
            UrlRefused: nothing may be sent to this URL.
            StorageFull: the disk is full.
        """
        if change.event_types is not None:
            _check_types(change.event_types, (await self.get(name, tenant)).endpoint.tenant)
        if change.url is not None:
            await check_url(change.url, self._senders.permits())
        async with self._one_at_a_time:
            view = await self.get(name, tenant)
            begun, now = None, self._clock.now()
            if change.enabled and view.consumer.state is ConsumerState.PARKED:
                selection = view.consumer.selection
                begun = insert_step(view.consumer.name, selection, "earliest", now)
            changed = _changed(view.endpoint, change, now)
            await self._write_at_rest(name, update_endpoint(changed, begun))
        return await self.get(name, tenant)

    async def rotate(self, name: str, tenant: str | None, *, keep_old: bool) -> EndpointView:
        """It has a new secret; the old one signs too for a day, if it is to.

        Raises:
            EndpointNotFound: this tenant has none that is called so.
            StorageFull: the disk is full.
        """
        async with self._one_at_a_time:
            endpoint, now = (await self.get(name, tenant)).endpoint, self._clock.now()
            changed = msgspec.structs.replace(
                endpoint,
                secret=new_secret(),
                old_secret=endpoint.secret if keep_old else None,
                old_secret_until=now + OVERLAP if keep_old else None,
                updated_at=now,
            )
            await self._write_at_rest(name, update_endpoint(changed))
        _log.info("webhook_secret_rotated", endpoint=name, keep_old=keep_old)
        return await self.get(name, tenant)

    async def delete(self, name: str, tenant: str | None) -> None:
        """It is gone, with its deliveries.

        Raises:
            EndpointNotFound: this tenant has none that is called so.
        """
        async with self._one_at_a_time:
            await self.get(name, tenant)
            await self._senders.end(name)
            await self._write(delete_endpoint(name))
        _log.info("webhook_deleted", endpoint=name)

    async def test(self, name: str, tenant: str | None, type_: str | None) -> Tried:
        """Send it a sample, once, and say what it answers. Works while it is disabled.

        Raises:
            EndpointNotFound: this tenant has none that is called so.
            Unanswered: nothing came back, and why.
        """
        endpoint, now = (await self.get(name, tenant)).endpoint, self._clock.now()
        type_ = type_ or endpoint.event_types[0]
        event = f"evt_sample_{self._mint().rpartition('_')[2]}"
        body = sample(event, type_, now)
        posts = await self._senders.posts()
        try:
            headers = signed(event, body, endpoint.secrets(now), now)
            answer = await posts.post(endpoint.url, headers, body)
        finally:
            await posts.close()
        if answer.status is None:
            raise Unanswered(f"The endpoint gave no answer: {answer.error}.")
        return Tried(endpoint=name, type=type_, status=answer.status, took_ms=answer.took_ms)

    def hint(self, secret: str) -> str:
        """Enough of a secret to tell it from others."""
        return hint(secret)

    async def change(self, name: str, tenant: str | None, operation: Operation) -> bool:
        """Whether this was written, with nothing on its way meanwhile.

        Raises:
            EndpointNotFound: this tenant has none that is called so.
            StorageFull: the disk is full.
        """
        async with self._one_at_a_time:
            await self.get(name, tenant)
            return await self._write_at_rest(name, operation)

    async def _write_at_rest(self, name: str, operation: Operation) -> bool:
        """Who sends begins anew, with what is written then."""
        await self._senders.end(name)
        try:
            return await self._write(operation)
        finally:
            self._senders.begin(name)

    async def _write(self, operation: Operation) -> bool:
        try:
            return isinstance(await self._writer.submit(operation), Committed)
        except StoreFull as error:
            raise StorageFull from error


def _changed(endpoint: Endpoint, change: Change, now: datetime) -> Endpoint:
    enabled = change.enabled
    if enabled is None:
        enabled = endpoint.state is EndpointState.ENABLED
    reason = None if enabled else endpoint.reason or DISABLED
    return msgspec.structs.replace(
        endpoint,
        name=change.name or endpoint.name,
        url=change.url or endpoint.url,
        event_types=change.event_types or endpoint.event_types,
        state=EndpointState.ENABLED if enabled else EndpointState.DISABLED,
        reason=reason,
        updated_at=now,
    )


def _check_types(event_types: Sequence[str], tenant: str | None) -> None:
    """A tenant has jobs only."""
    foreign = [one for one in event_types if one.startswith(("generation.", "drain."))]
    if tenant is not None and foreign:
        text = f"Invalid 'event_types': a tenant is not sent '{foreign[0]}'."
        raise InvalidRequest(text, param="event_types")
