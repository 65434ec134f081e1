"""What is asked of reports: bodies, and queries of readers with a place of their own or without."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from litestar import Request

from app.domain.errors import InvalidRequest, StringTooLong
from app.domain.feed import CLASSES_DEFAULT, KINDS, Cursor, ReportKind, Selection
from app.domain.job import JobClass
from app.http.explaining import decode
from app.http.native.schema import TENANT, TENANT_CHARS_MAX
from app.http.query import Query
from app.http.reports.schema import (
    EPOCH_CHARS_MAX,
    NAME,
    NAME_CHARS_MAX,
    SEQ_MAX,
    AckRequest,
    ConsumerRequest,
)

PAGE_DEFAULT: Final = 100
PAGE_MAX: Final = 1_000
TAGS_MAX: Final = 16
TAG_CHARS_MAX: Final = 512

_CURSOR: Final = f"an object of 'epoch' and 'seq', an integer from 0 to {SEQ_MAX}"
_NAME_IS: Final = f"1 to {NAME_CHARS_MAX} letters, digits and any of _.- behind the first"
EXPECTED: Final = {
    "name": _NAME_IS,
    "consumer": _NAME_IS,
    "from": "'earliest' or 'latest'",
    "kinds": "an array of job, generation, drain",
    "classes": "an array of interactive, background, batch",
    "tags": f"an object of up to {TAGS_MAX} strings",
    "include_attached": "a boolean",
    "tenant": f"1 to {TENANT_CHARS_MAX} letters, digits and any of _.@:/- behind the first",
    "through": _CURSOR,
}

_CONSUMER: Final = msgspec.json.Decoder(ConsumerRequest)
_ACK: Final = msgspec.json.Decoder(AckRequest)
_WRITTEN: Final = re.compile(rf"([0-9A-Za-z_-]{{1,{EPOCH_CHARS_MAX}}}):(\d{{1,16}})")
_NAME: Final = re.compile(NAME)
_TENANT: Final = re.compile(TENANT)
_FILTERS: Final = ("kind", "class", "tag", "include_attached")

HttpRequest = Request[Any, Any, Any]


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader asks for: the consumer's reports, or those of a selection behind a place."""

    consumer: str | None
    tenant: str | None
    selection: Selection
    after: Cursor | None
    limit: int


def decode_consumer(body: bytes) -> tuple[ConsumerRequest, Selection]:
    """A consumer to be made.

    Raises:
        InvalidRequest: naming the field that cannot be used.
    """
    asked = decode(_CONSUMER, body, EXPECTED.get)
    check_tags(asked.tags or {}, "tags")
    kinds = _kinds(asked.kinds, asked.tenant, "kinds")
    return asked, _selection(asked, kinds)


def decode_ack(body: bytes) -> AckRequest:
    """An acknowledgement.

    Raises:
        InvalidRequest: naming the field that cannot be used.
    """
    return decode(_ACK, body, EXPECTED.get)


def tenant_of(request: HttpRequest) -> str | None:
    """Whose consumer is meant; None is the operator's.

    Raises:
        InvalidRequest: naming the parameter that is unknown, or has no such value.
    """
    return tenant_in(Query(request, "tenant"))


def page_asked(request: HttpRequest) -> Reading:
    """The page that is asked for.

    Raises:
        InvalidRequest: naming the parameter that is unknown, or has no such value.
    """
    query = Query(request, "consumer", "tenant", "limit", "after", *_FILTERS)
    return _reading(query, query.integer("limit", 1, PAGE_MAX) or PAGE_DEFAULT, None)


def stream_asked(request: HttpRequest) -> Reading:
    """The stream that is asked for. ``Last-Event-ID`` counts where the query says nothing:
    browsers send it when they reconnect.

    Raises:
        InvalidRequest: naming the parameter that is unknown, or has no such value.
    """
    query = Query(request, "consumer", "tenant", "after", *_FILTERS)
    return _reading(query, 0, request.headers)


def _selection(asked: ConsumerRequest, kinds: tuple[ReportKind, ...]) -> Selection:
    classes = CLASSES_DEFAULT if asked.classes is None else tuple(map(JobClass, asked.classes))
    return Selection(
        tenant=asked.tenant,
        kinds=kinds,
        classes=tuple(dict.fromkeys(classes)),
        tags=asked.tags or {},
        include_attached=bool(asked.include_attached),
    )


def _kinds(
    asked: "list[ReportKind] | None", tenant: str | None, param: str
) -> tuple[ReportKind, ...]:
    if tenant is None:
        return KINDS if asked is None else tuple(dict.fromkeys(asked))
    if asked is not None and set(asked) != {"job"}:
        text = f"Invalid '{param}': a tenant has reports of jobs only."
        raise InvalidRequest(text, param=param)
    return ("job",)


def _reading(query: Query, limit: int, headers: Mapping[str, str] | None) -> Reading:
    consumer, tenant = _consumer(query), tenant_in(query)
    after = _cursor(query.one("after"), "after")
    if after is None and headers is not None:
        after = _cursor(headers.get("Last-Event-ID") or None, "Last-Event-ID")
    given = [name for name in _FILTERS if query.all(name)]
    if consumer is not None and given:
        text = f"'{given[0]}' is fixed for a consumer when it is made."
        raise InvalidRequest(text, param=given[0])
    return Reading(
        consumer=consumer,
        tenant=tenant,
        selection=Selection() if consumer is not None else _asked_selection(query, tenant),
        after=after,
        limit=limit,
    )


def _asked_selection(query: Query, tenant: str | None) -> Selection:
    kinds = [_one_of(value, "kind", KINDS) for value in query.all("kind")]
    classes = [_one_of(value, "class", tuple(JobClass)) for value in query.all("class")]
    return Selection(
        tenant=tenant,
        kinds=_kinds(kinds or None, tenant, "kind"),
        classes=tuple(dict.fromkeys(classes)) or CLASSES_DEFAULT,
        tags=_tags(query),
        include_attached=_one_of(query.one("include_attached"), "include_attached", _BOOLEANS)
        == "true",
    )


_BOOLEANS: Final = ("true", "false", None)


def _one_of(value: Any, name: str, allowed: "tuple[Any, ...]") -> Any:
    if value not in allowed:
        listed = ", ".join(str(one) for one in allowed if one is not None)
        raise InvalidRequest(f"Invalid '{name}': it must be one of {listed}.", param=name)
    return value if value is None else allowed[allowed.index(value)]


def _tags(query: Query) -> dict[str, str]:
    tags: dict[str, str] = {}
    for value in query.all("tag"):
        key, colon, wanted = value.partition(":")
        if not colon or not key:
            text = "Invalid 'tag': it must be written as key:value."
            raise InvalidRequest(text, param="tag")
        tags[key] = wanted
    check_tags(tags, "tag")
    return tags


def check_tags(tags: Mapping[str, str], param: str) -> None:
    """Whether a job can have these.

    Raises:
        InvalidRequest: naming the parameter.
    """
    if len(tags) > TAGS_MAX or any(not key for key in tags):
        raise InvalidRequest(f"Invalid '{param}': it must be {EXPECTED['tags']}.", param=param)
    if any(len(text) > TAG_CHARS_MAX for pair in tags.items() for text in pair):
        text = f"A part of '{param}' is longer than {TAG_CHARS_MAX} characters."
        raise StringTooLong(text, param=param)


def _consumer(query: Query) -> str | None:
    name = query.one("consumer")
    if name is not None and (len(name) > NAME_CHARS_MAX or not _NAME.match(name)):
        raise InvalidRequest(f"Invalid 'consumer': it must be {_NAME_IS}.", param="consumer")
    return name


def tenant_in(query: Query) -> str | None:
    """Whose thing is meant; None is the operator's.

    Raises:
        InvalidRequest: no tenant is called so.
    """
    tenant = query.one("tenant")
    if tenant is not None and (len(tenant) > TENANT_CHARS_MAX or not _TENANT.match(tenant)):
        raise InvalidRequest("Invalid 'tenant': no tenant is called so.", param="tenant")
    return tenant


def _cursor(written: str | None, param: str) -> Cursor | None:
    if written is None:
        return None
    found = _WRITTEN.fullmatch(written)
    if found is None or int(found.group(2)) > SEQ_MAX:
        text = f"Invalid '{param}': a place is written as epoch:seq."
        raise InvalidRequest(text, param=param)
    return Cursor(found.group(1), int(found.group(2)))
