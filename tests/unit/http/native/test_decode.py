"""Submissions, from bytes to drafts: what is taken, what is refused, and where it says it lies."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain.draft import JobDraft
from app.domain.errors import (
    InvalidRequest,
    MalformedJson,
    MissingParameter,
    StringTooLong,
    UnknownParameter,
    UnsupportedParameter,
)
from app.domain.job import Durability, JobClass
from app.http.native.decode import (
    EXPECTED,
    KEEP_UNSTORED_S,
    decode_bulk,
    decode_job,
    to_draft,
)
from app.http.native.schema import ChatBody, JobSubmission
from shared.requests import ChatMessage

USER = {"role": "user", "content": "hello"}


def job(**fields: Any) -> dict[str, Any]:
    """A valid submission with changes; a field of ``...`` is left out."""
    whole = {"kind": "chat", "model": "m", "body": {"messages": [USER]}, **fields}
    return {name: value for name, value in whole.items() if value is not ...}


def chat(**fields: Any) -> dict[str, Any]:
    """A valid submission whose body has changes."""
    return job(body={"messages": [USER], **fields})


def draft(submission: Any) -> JobDraft:
    return to_draft(decode_job(json.dumps(submission).encode()), lambda: 99)


def refusal(submission: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        draft(submission)
    return caught.value


def test_the_least_job_is_durable_and_in_the_background() -> None:
    made = draft(job())
    assert (made.surface, made.model, made.tenant) == ("native", "m", "default")
    assert (made.durability, made.job_class) == (Durability.DURABLE, JobClass.BACKGROUND)
    assert (made.priority, made.max_attempts, made.tags) == (0, 1, {})
    assert made.deadline_s is made.attempt_timeout_s is made.scheduled_at is made.keep_s is None
    assert made.request.messages == (ChatMessage(role="user", content="hello"),)
    assert made.request.sampling.seed == 99


def test_every_optional_field_may_be_null() -> None:
    names = {
        item.encode_name for item in msgspec.structs.fields(JobSubmission) if not item.required
    }
    inner = {item.encode_name for item in msgspec.structs.fields(ChatBody) if not item.required}
    given = {**dict.fromkeys(names), **chat(**dict.fromkeys(inner))}
    assert draft(given) == draft(job())


def test_every_field_reaches_the_draft() -> None:
    made = draft(
        job(
            **{"class": "batch"},
            priority=-3,
            tenant="team/a",
            tags={"run": "7"},
            deadline_s=60,
            attempt_timeout_s=9.5,
            max_attempts=4,
            scheduled_at="2030-01-01T02:00:00+02:00",
            body={
                "messages": [USER],
                "max_tokens": 5,
                "temperature": 0,
                "top_p": 0.5,
                "top_k": 40,
                "min_p": 0.1,
                "seed": 7,
                "stop": ["END"],
                "store": False,
            },
        )
    )
    assert (made.job_class, made.priority, made.tenant) == (JobClass.BATCH, -3, "team/a")
    assert (made.tags, made.deadline_s, made.attempt_timeout_s) == ({"run": "7"}, 60.0, 9.5)
    assert (made.max_attempts, made.keep_s) == (4, KEEP_UNSTORED_S)
    assert made.scheduled_at == datetime(2030, 1, 1, tzinfo=UTC)
    request, sampling = made.request, made.request.sampling
    assert (request.max_tokens, request.stop) == (5, ("END",))
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.0, 0.5, 40)
    assert (sampling.min_p, sampling.seed) == (0.1, 7)


@pytest.mark.parametrize(
    ("outer", "inner", "kept"),
    [
        (5, None, 5),
        (None, 5, 5),
        (5, 5, 5),
        (-1, 2**64 - 1, 2**64 - 1),
        (2**64 - 1, None, 2**64 - 1),
        (0, None, 0),
    ],
)
def test_the_seed_may_stand_in_either_place(outer: Any, inner: Any, kept: int) -> None:
    made = draft(job(seed=outer, body={"messages": [USER], "seed": inner}))
    assert made.request.sampling.seed == kept


def test_two_different_seeds_are_a_contradiction() -> None:
    error = refusal(job(seed=1, body={"messages": [USER], "seed": 2}))
    assert error.param == "seed"
    assert "'body.seed'" in error.message


UNKNOWN: list[tuple[Any, str]] = [
    (job(colour="red"), "colour"),
    (job(class_="batch"), "class_"),
    (chat(n=2), "body.n"),
    (chat(stream=True), "body.stream"),
    (chat(messages=[USER, {**USER, "mood": "good"}]), "body.messages[1].mood"),
    (
        chat(messages=[{"role": "user", "content": [{"type": "text", "text": "x", "cache": 1}]}]),
        "body.messages[0].content[0].cache",
    ),
    (job(**{"x" * 100: 1}), "x" * 64),
]


@pytest.mark.parametrize(("submission", "param"), UNKNOWN)
def test_an_unknown_field_is_refused_by_its_place(submission: Any, param: str) -> None:
    error = refusal(submission)
    assert type(error) is UnknownParameter
    assert (error.code, error.param) == ("unknown_parameter", param)
    assert param in error.message


@pytest.mark.parametrize(
    ("submission", "param"),
    [
        (job(kind=...), "kind"),
        (job(model=...), "model"),
        (job(body=...), "body"),
        (job(body={}), "body.messages"),
        (chat(messages=[{"content": "x"}]), "body.messages[0].role"),
        (chat(messages=[{"role": "user"}]), "body.messages[0].content"),
    ],
)
def test_a_missing_field_is_named_by_its_place(submission: Any, param: str) -> None:
    error = refusal(submission)
    assert type(error) is MissingParameter
    assert error.param == param
    assert f"'{param}'" in error.message


WRONG: list[tuple[Any, str]] = [
    (job(kind="poem"), "kind"),
    (job(model=""), "model"),
    (job(body=[]), "body"),
    (job(**{"class": "urgent"}), "class"),
    (job(priority=1001), "priority"),
    (job(priority=0.5), "priority"),
    (job(tenant=""), "tenant"),
    (job(tenant="a b"), "tenant"),
    (job(tenant="a\n"), "tenant"),
    (job(tenant="x" * 65), "tenant"),
    (job(tags=[]), "tags"),
    (job(tags={"a:b": "c"}), "tags"),
    (job(tags={"": "c"}), "tags"),
    (job(tags={str(n): "" for n in range(17)}), "tags"),
    (job(deadline_s=0), "deadline_s"),
    (job(deadline_s=31_536_001), "deadline_s"),
    (job(attempt_timeout_s=-1), "attempt_timeout_s"),
    (job(max_attempts=0), "max_attempts"),
    (job(max_attempts=101), "max_attempts"),
    (job(scheduled_at="tomorrow"), "scheduled_at"),
    (job(scheduled_at="2030-01-01T00:00:00"), "scheduled_at"),
    (job(scheduled_at="1999-12-31T00:00:00Z"), "scheduled_at"),
    (job(scheduled_at="9999-12-31T23:59:59-01:00"), "scheduled_at"),
    (job(scheduled_at=1_900_000_000), "scheduled_at"),
    (job(seed=2**64), "seed"),
    (job(seed="x"), "seed"),
    (chat(messages="hello"), "body.messages"),
    (chat(max_tokens=0), "body.max_tokens"),
    (chat(temperature=3), "body.temperature"),
    (chat(top_p=0), "body.top_p"),
    (chat(top_k=-2), "body.top_k"),
    (chat(min_p=2), "body.min_p"),
    (chat(seed=2**64), "body.seed"),
    (chat(stop=5), "body.stop"),
    (chat(store="no"), "body.store"),
]


@pytest.mark.parametrize(("submission", "param"), WRONG)
def test_a_wrong_value_is_told_what_it_may_be(submission: Any, param: str) -> None:
    error = refusal(submission)
    assert (error.code, error.param) == ("invalid_value", param)
    assert EXPECTED[param] in error.message


@pytest.mark.parametrize(
    ("submission", "kind", "param"),
    [
        (chat(messages=[]), InvalidRequest, "body.messages"),
        (
            chat(messages=[{"role": "king", "content": "x"}]),
            InvalidRequest,
            "body.messages[0].role",
        ),
        (
            chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
            UnsupportedParameter,
            "body.messages[0].content[0]",
        ),
        (chat(stop=list("abcde")), InvalidRequest, "body.stop"),
        (chat(stop="x" * 4097), StringTooLong, "body.stop"),
        (job(tags={"k" * 65: ""}), StringTooLong, "tags"),
        (job(tags={"k": "v" * 513}), StringTooLong, "tags"),
    ],
)
def test_what_the_chat_door_refuses_is_refused_by_its_place_in_the_body(
    submission: Any, kind: type[InvalidRequest], param: str
) -> None:
    error = refusal(submission)
    assert (type(error), error.param) == (kind, param)
    assert f"'{param}'" in error.message


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", MalformedJson),
        (b"{", MalformedJson),
        (b"\xff", MalformedJson),
        (b"[" * 100_000, InvalidRequest),
        (b"[]", InvalidRequest),
        (b"null", InvalidRequest),
    ],
)
def test_what_is_no_object_is_refused(body: bytes, kind: type[InvalidRequest]) -> None:
    for decode in (decode_job, decode_bulk):
        with pytest.raises(InvalidRequest) as caught:
            decode(body)
        assert (type(caught.value), caught.value.param) == (kind, None)


@pytest.mark.parametrize(
    ("jobs", "param"),
    [
        ([], "jobs"),
        ([job()] * 1001, "jobs"),
        ({}, "jobs"),
        ([job()] * 17 + [chat(messages="x")], "jobs[17].body.messages"),
        ([job(), job(colour="red")], "jobs[1].colour"),
        ([job(), chat(temperature=3)], "jobs[1].body.temperature"),
        ([job(), job(body=...)], "jobs[1].body"),
        ([job(), 5], "jobs[1]"),
    ],
)
def test_in_bulk_the_job_is_named(jobs: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_bulk(json.dumps({"jobs": jobs}).encode())
    assert caught.value.param == param
    assert f"'{param}'" in caught.value.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
NAMES = st.sampled_from([*EXPECTED, "colour"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(NAMES, JSON, max_size=6), st.dictionaries(NAMES, JSON, max_size=4))
def test_any_object_is_a_job_or_refused_by_a_place(
    outer: dict[str, Any], inner: dict[str, Any]
) -> None:
    fields = {name: value for name, value in outer.items() if not name.startswith("body")}
    body = {name.removeprefix("body."): value for name, value in inner.items()}
    try:
        made = draft(job(**fields, body={"messages": [USER], **body}))
    except InvalidRequest as error:
        located = error.param is not None or error.code == "invalid_json"
        msgspec.json.encode([error.message, error.param])
    else:
        located = bool(msgspec.msgpack.encode(made.request))
    assert located
