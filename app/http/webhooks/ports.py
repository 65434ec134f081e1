"""What the doors of webhooks need from the services. A tenant of None is the operator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.feed import Consumer, Selection, Start
from app.domain.webhooks import Change, Delivery, Endpoint
from app.http.reports.ports import Feed


class EndpointView(Protocol):
    """An endpoint and how it stands."""

    @property
    def endpoint(self) -> Endpoint: ...
    @property
    def consumer(self) -> Consumer: ...
    @property
    def waiting(self) -> int: ...
    @property
    def parked(self) -> int: ...


class Tried(Protocol):
    """What an endpoint answered to a sample."""

    @property
    def endpoint(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def status(self) -> int: ...
    @property
    def took_ms(self) -> int: ...


class Endpoints(Protocol):
    """Endpoints. All but ``create`` and ``all`` raise EndpointNotFound."""

    async def create(
        self,
        name: str,
        url: str,
        event_types: Sequence[str],
        selection: Selection,
        start: Start,
        /,
    ) -> EndpointView:
        """A new one.

        Raises:
            UrlRefused, TooManyEndpoints: it may not be.
        """
        ...

    async def all(self, tenant: str | None, /) -> Sequence[EndpointView]:
        """All of a tenant's, the latest first."""
        ...

    async def get(self, name: str, tenant: str | None, /) -> EndpointView:
        """This one."""
        ...

    async def update(self, name: str, tenant: str | None, change: Change, /) -> EndpointView:
        """It is otherwise from now on.

        Raises:
            UrlRefused: nothing may be sent to this URL.
        """
        ...

    async def rotate(self, name: str, tenant: str | None, /, *, keep_old: bool) -> EndpointView:
        """It has a new secret."""
        ...

    async def delete(self, name: str, tenant: str | None, /) -> None:
        """It is gone."""
        ...

    async def test(self, name: str, tenant: str | None, type_: str | None, /) -> Tried:
        """Send it a sample.

        Raises:
            Unanswered: nothing came back.
        """
        ...

    def hint(self, secret: str, /) -> str:
        """Enough of a secret to tell it from others."""
        ...


class Deliveries(Protocol):
    """What was sent. All raise EndpointNotFound and EventNotFound."""

    async def page(
        self,
        name: str,
        tenant: str | None,
        state: str | None,
        after: str | None,
        limit: int,
        /,
    ) -> Sequence[Delivery]:
        """The latest first."""
        ...

    async def replay_event(self, name: str, tenant: str | None, event: str, /) -> None:
        """This one again."""
        ...

    async def replay_parked(self, name: str, tenant: str | None, /) -> int:
        """What was given up; how many that is."""
        ...

    async def replay_from(self, name: str, tenant: str | None, event: str, /) -> None:
        """All from this one on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookPorts:
    """The services behind these doors."""

    feed: Feed
    endpoints: Endpoints
    deliveries: Deliveries
