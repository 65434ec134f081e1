"""What the native door's queries may ask for."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from litestar import Request

from app.domain.errors import InvalidRequest
from app.domain.job import JobState
from app.http.native.schema import DEFAULT_TENANT, TENANT, TENANT_CHARS_MAX
from app.http.query import Query, integer
from shared.ids import JobId

PAGE_DEFAULT: Final = 20
PAGE_MAX: Final = 100
EVENT_MAX: Final = 2**53 - 1

_JOB_ID: Final = re.compile(r"job_[0-9a-f]{32}")
_TENANT: Final = re.compile(TENANT)


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs, and how many of them."""

    tenant: str
    states: tuple[JobState, ...]
    tag: tuple[str, str] | None
    model: str | None
    after: JobId | None
    limit: int


def listing(request: Request[Any, Any, Any]) -> Listing:
    """The page that is asked for.

    Raises:
        InvalidRequest: naming the parameter that is unknown, or has no such value.
    """
    query = Query(request, "state", "tenant", "tag", "model", "after", "limit")
    limit = query.integer("limit", 1, PAGE_MAX)
    return Listing(
        tenant=_tenant(query),
        states=_states(query),
        tag=_tag(query.one("tag")),
        model=query.one("model"),
        after=_after(query.one("after")),
        limit=PAGE_DEFAULT if limit is None else limit,
    )


def tenant_of(request: Request[Any, Any, Any]) -> str:
    """Whose job is meant, by a query that says nothing else.

    Raises:
        InvalidRequest: naming the parameter that is unknown, or has no such value.
    """
    return _tenant(Query(request, "tenant"))


def followed_from(request: Request[Any, Any, Any]) -> tuple[str, int]:
    """Whose job is followed, and the number of the last event that its reader has; -1 for none.

    ``Last-Event-ID`` counts where the query says nothing: browsers send it when they reconnect.

    Raises:
        InvalidRequest: naming the parameter that is unknown, or has no such value.
    """
    query = Query(request, "tenant", "starting_after")
    return _tenant(query), _starting_after(query, request.headers)


def _starting_after(query: Query, headers: Mapping[str, str]) -> int:
    asked = query.integer("starting_after", 0, EVENT_MAX)
    if asked is not None:
        return asked
    seen = headers.get("Last-Event-ID", "")
    return integer(seen, "Last-Event-ID", 0, EVENT_MAX) if seen else -1


def _tenant(query: Query) -> str:
    tenant = query.one("tenant")
    if tenant is None:
        return DEFAULT_TENANT
    if len(tenant) > TENANT_CHARS_MAX or not _TENANT.match(tenant):
        raise InvalidRequest("Invalid 'tenant': no tenant is called so.", param="tenant")
    return tenant


def _states(query: Query) -> tuple[JobState, ...]:
    names = [name for value in query.all("state") for name in value.split(",")]
    for name in names:
        if name not in tuple(JobState):
            allowed = ", ".join(JobState)
            text = f"Invalid 'state': it must be one or several of {allowed}."
            raise InvalidRequest(text, param="state")
    return tuple(dict.fromkeys(JobState(name) for name in names))


def _tag(value: str | None) -> tuple[str, str] | None:
    if value is None:
        return None
    key, colon, wanted = value.partition(":")
    if not colon or not key:
        raise InvalidRequest("Invalid 'tag': it must be written as key:value.", param="tag")
    return key, wanted


def _after(value: str | None) -> JobId | None:
    if value is None:
        return None
    if not _JOB_ID.fullmatch(value):
        raise InvalidRequest("Invalid 'after': it must be the id of a job.", param="after")
    return JobId(value)
