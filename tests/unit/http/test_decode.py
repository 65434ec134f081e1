"""Chat requests, from bytes to a draft: what is taken, what is refused, and how that is said."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.domain.draft import JobDraft
from app.domain.errors import (
    InvalidRequest,
    JobServerError,
    MissingParameter,
    StringTooLong,
    UnsupportedParameter,
)
from app.domain.job import Durability, JobClass
from app.http.openai.decode import EXPECTED, decode_chat, to_draft
from app.http.openai.schema import ChatCompletionRequest
from app.http.openai.verdicts import NEUTRAL, NO_OPS
from shared.limits import MESSAGES_MAX
from shared.requests import ChatMessage

USER = {"role": "user", "content": "hello"}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [USER], **fields}).encode()


def draft(**fields: Any) -> JobDraft:
    return to_draft(decode_chat(body(**fields)).request, lambda: 99)


def refusal(**fields: Any) -> JobServerError:
    with pytest.raises(InvalidRequest) as caught:
        draft(**fields)
    return caught.value


def test_the_least_request_takes_every_default() -> None:
    made = draft()
    assert (made.surface, made.model) == ("chat", "m")
    assert (made.durability, made.job_class) == (Durability.ATTACHED, JobClass.INTERACTIVE)
    assert made.request.messages == (ChatMessage(role="user", content="hello"),)
    assert made.request.max_tokens is None
    assert made.request.stop == ()
    sampling = made.request.sampling
    assert (sampling.seed, sampling.temperature, sampling.top_p) == (99, 1.0, 1.0)
    assert (sampling.top_k, sampling.min_p) == (0, 0.0)


def test_every_optional_field_may_be_null() -> None:
    names = set(ChatCompletionRequest.__struct_fields__) - {"model", "messages"}
    assert draft(**dict.fromkeys(names)) == draft()


def test_sampling_fields_reach_the_draft() -> None:
    made = draft(temperature=0, top_p=0.5, top_k=40, min_p=0.1, seed=7, stop="END", max_tokens=5)
    sampling = made.request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.0, 0.5, 40)
    assert (sampling.min_p, sampling.seed) == (0.1, 7)
    assert (made.request.stop, made.request.max_tokens) == (("END",), 5)


@pytest.mark.parametrize(
    ("seed", "kept"), [(0, 0), (-1, 2**64 - 1), (-(2**63), 2**63), (2**63 - 1, 2**63 - 1)]
)
def test_seeds_are_taken_as_unsigned(seed: int, kept: int) -> None:
    assert draft(seed=seed).request.sampling.seed == kept


@pytest.mark.parametrize(
    ("stop", "kept"), [("a", ("a",)), (["a", "b"], ("a", "b")), ([], ()), (None, ())]
)
def test_stop_is_one_string_or_several(stop: Any, kept: tuple[str, ...]) -> None:
    assert draft(stop=stop).request.stop == kept


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"max_completion_tokens": 3}, 3),
        ({"max_tokens": 3, "max_completion_tokens": 3}, 3),
        ({"max_tokens": None, "max_completion_tokens": 4}, 4),
        ({"max_tokens": 10**30}, 2**31 - 1),
    ],
)
def test_both_names_of_the_token_limit_are_taken(fields: dict[str, Any], kept: int) -> None:
    assert draft(**fields).request.max_tokens == kept


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"seed": 2**63}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"stop": 1}, "stop"),
        ({"stop": list("abcde")}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"model": "m" * 513}, "model"),
        ({"messages": "hello"}, "messages"),
        ({"metadata": [1]}, "metadata"),
        ({"service_tier": "gold"}, "service_tier"),
    ],
)
def test_a_value_out_of_range_is_told_what_the_range_is(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert (error.code, error.param) == ("invalid_value", param)
    assert EXPECTED[param] in error.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream_options": {}, "stream": False}, "stream_options"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"messages": []}, "messages"),
        ({"messages": [USER] * (MESSAGES_MAX + 1)}, "messages"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"metadata": {"a": 1}}, "metadata[...]"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ],
)
def test_fields_that_contradict_or_overflow(fields: dict[str, Any], param: str) -> None:
    assert refusal(**fields).param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop": "x" * 4097}, "stop"),
        ({"metadata": {"k" * 65: ""}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"prompt_cache_key": "k" * 65}, "prompt_cache_key"),
    ],
)
def test_strings_over_their_length(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert isinstance(error, StringTooLong)
    assert error.param == param


ASKED_FOR: dict[str, Any] = {
    "n": 2,
    "logprobs": True,
    "top_logprobs": 1,
    "frequency_penalty": 0.5,
    "presence_penalty": -2,
    "repetition_penalty": 1.1,
    "store": True,
    "modalities": ["text", "audio"],
    "logit_bias": {"5": 1},
    "tools": [{"type": "function"}],
    "tool_choice": "required",
    "functions": [{"name": "f"}],
    "function_call": {"name": "f"},
    "response_format": {"type": "json_object"},
    "audio": {"voice": "a"},
    "moderation": {},
    "web_search_options": {},
    "chat_template_kwargs": {"enable_thinking": False},
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_known_field_that_cannot_be_obeyed_is_refused_by_name(name: str) -> None:
    companions: dict[str, Any] = {"top_logprobs": {"logprobs": True}, "tool_choice": {"tools": [1]}}
    error = refusal(**{name: ASKED_FOR[name], **companions.get(name, {})})
    assert isinstance(error, UnsupportedParameter)
    assert error.param in {name, *companions.get(name, {})}
    assert "'m'" in error.message


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1},
        {"logprobs": False, "top_logprobs": 0},
        {"frequency_penalty": 0, "presence_penalty": 0.0, "repetition_penalty": 1.0},
        {"store": False},
        {"modalities": ["text"]},
        {"logit_bias": {}},
        {"tools": [], "tool_choice": "none"},
        {"tool_choice": "auto", "parallel_tool_calls": True},
        {"functions": [], "function_call": "none"},
        {"response_format": {"type": "text"}},
        {"chat_template_kwargs": {}},
    ],
)
def test_a_known_field_that_asks_for_nothing_is_taken(fields: dict[str, Any]) -> None:
    assert draft(**fields) == draft()
    assert decode_chat(body(**fields)).ignored == []


def test_no_ops_and_unknown_fields_are_listed_as_ignored() -> None:
    given: dict[str, Any] = {
        "echo": True,
        "prediction": {"type": "content"},
        "prompt_cache_options": {},
        "prompt_cache_retention": "24h",
        "reasoning_effort": "low",
        "verbosity": "low",
        "stream": True,
        "stream_options": {"include_obfuscation": True},
    }
    ignored = decode_chat(body(**given)).ignored
    assert ignored == ["echo", *NO_OPS, "stream_options.include_obfuscation"]


TAKEN: list[tuple[dict[str, Any], ChatMessage]] = [
    ({"role": "developer", "content": "x"}, ChatMessage("system", "x")),
    ({"role": "system", "content": "x"}, ChatMessage("system", "x")),
    ({"role": "assistant", "content": ""}, ChatMessage("assistant", "")),
    ({"role": "assistant", "refusal": "no"}, ChatMessage("assistant", "no")),
    ({"role": "assistant", "content": "x", "tool_calls": []}, ChatMessage("assistant", "x")),
    ({"role": "tool", "content": "4", "tool_call_id": "c"}, ChatMessage("tool", "4")),
    ({"role": "user", "content": "x", "name": "me"}, ChatMessage("user", "x", "me")),
    (
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "text", "text": "b", "cache_control": {}},
                {"type": "refusal", "refusal": "c"},
            ],
        },
        ChatMessage("user", "abc"),
    ),
    ({"role": "user", "content": "\x00é👩‍👩‍👧‍👦"}, ChatMessage("user", "\x00é👩‍👩‍👧‍👦")),
]


@pytest.mark.parametrize(("message", "kept"), TAKEN)
def test_messages_are_reduced_to_text(message: dict[str, Any], kept: ChatMessage) -> None:
    assert draft(messages=[message]).request.messages == (kept,)


UNUSABLE: list[tuple[Any, type[InvalidRequest], str]] = [
    ({"content": "x"}, MissingParameter, "messages[1].role"),
    ({"role": "user"}, MissingParameter, "messages[1].content"),
    ({"role": "user", "content": None}, MissingParameter, "messages[1].content"),
    ({"role": "assistant", "content": None}, MissingParameter, "messages[1].content"),
    ({"role": "user", "content": 5}, InvalidRequest, "messages[1].content"),
    ({"role": "user", "content": []}, InvalidRequest, "messages[1].content"),
    ({"role": "user", "content": ["x"]}, InvalidRequest, "messages[1].content[0]"),
    ({"role": "user", "content": [{}]}, MissingParameter, "messages[1].content[0].type"),
    (
        {"role": "user", "content": [{"type": "text"}]},
        MissingParameter,
        "messages[1].content[0].text",
    ),
    (
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]},
        UnsupportedParameter,
        "messages[1].content[0]",
    ),
    ({"role": "function", "content": "x"}, InvalidRequest, "messages[1].role"),
    ({"role": 5, "content": "x"}, InvalidRequest, "messages[1].role"),
    ({"role": "user", "content": "x", "name": 5}, InvalidRequest, "messages[1].name"),
    (
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
        UnsupportedParameter,
        "messages[1].tool_calls",
    ),
    (5, InvalidRequest, "messages[1]"),
    (None, InvalidRequest, "messages[1]"),
]


@pytest.mark.parametrize(("message", "kind", "param"), UNUSABLE)
def test_a_message_that_cannot_be_used_is_named(
    message: Any, kind: type[InvalidRequest], param: str
) -> None:
    error = refusal(messages=[USER, message])
    assert type(error) is kind
    assert error.param == param
    assert param in error.message


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_a_missing_field_is_named(missing: str) -> None:
    fields = {"model": "m", "messages": [USER]}
    del fields[missing]
    with pytest.raises(MissingParameter) as caught:
        decode_chat(json.dumps(fields).encode())
    assert caught.value.param == missing


def test_of_a_field_given_twice_the_last_one_counts() -> None:
    twice = b'{"model":"a","model":"b","messages":[{"role":"user","content":"x"}]}'
    assert decode_chat(twice).request.model == "b"


# Hypothesis reads its table of Unicode at the first draw, which takes a second on a small machine.
patiently = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(ChatCompletionRequest.__struct_fields__)


@patiently
@given(st.binary(max_size=200))
@example(b'{"model":"m","messages":[{"role":"user","content":"\xed\xa0\x80"}]}')
@example(b'{"model":"m","messages":[{"role":"user","content":"\\udc00\\ud800"}]}')
@example(b'{"\\ud800":1}')
@example(b'{"model":"m","messages":[' + b"[" * 10_000)
@example(b'{"tools":' * 5_000)
@example(b'{"metadata":{"\\n - at `$.x`":1},"model":"m","messages":[]}')
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    try:
        to_draft(decode_chat(data).request, lambda: 1)
    except InvalidRequest as error:
        msgspec.json.encode(error.message)


@patiently
@given(st.dictionaries(FIELDS, JSON, max_size=6))
def test_any_object_is_a_request_or_refused(fields: dict[str, Any]) -> None:
    data = json.dumps({"model": "m", "messages": [USER], **fields}).encode()
    try:
        made = to_draft(decode_chat(data).request, lambda: 1)
    except InvalidRequest as error:
        msgspec.json.encode(error.message)
    else:
        assert msgspec.msgpack.encode(made.request)


@patiently
@given(st.lists(JSON, max_size=3))
def test_any_messages_are_a_conversation_or_refused(messages: list[Any]) -> None:
    try:
        made = draft(messages=messages)
    except InvalidRequest as error:
        located = error.param is not None or error.code == "invalid_json"
    else:
        located = len(made.request.messages) == len(messages)
    assert located
