"""Every refusal, for plain requests and for streams: its status comes first, and is not 200."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.calls import Call
from tests.e2e.server import CHAT, RunningServer, Site, site_in
from tests.waiting import wait_until

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
CONTEXT_TOKENS = 8_192


@dataclass(frozen=True)
class Refusal:
    """What is sent beside a valid request, and what must come back."""

    name: str
    fields: dict[str, Any]
    code: str
    param: str | None
    status: int = 400
    says: str = ""


def invalid(param: str, value: Any, says: str = "") -> Refusal:
    return Refusal(f"{param}={value!r:.20}", {param: value}, "invalid_value", param, says=says)


def unsupported(param: str, value: Any) -> Refusal:
    return Refusal(f"{param}={value!r:.20}", {param: value}, "unsupported_parameter", param)


def message(code: str, param: str, **turn: Any) -> Refusal:
    turns = [{"role": "user", "content": "hi", **turn}]
    present = [{name: value for name, value in turns[0].items() if value is not ...}]
    return Refusal(f"{param} {code}", {"messages": present}, code, param)


REFUSALS = [
    Refusal("no messages", {"messages": ...}, "missing_required_parameter", "messages"),
    Refusal("no model", {"model": ...}, "missing_required_parameter", "model"),
    invalid("messages", "hello"),
    invalid("messages", None),
    invalid("messages", []),
    Refusal("messages[0]=5", {"messages": [5]}, "invalid_value", "messages[0]"),
    message("missing_required_parameter", "messages[0].role", role=...),
    message("invalid_value", "messages[0].role", role="robot"),
    message("missing_required_parameter", "messages[0].content", content=...),
    message("invalid_value", "messages[0].content", content=[]),
    message("unsupported_parameter", "messages[0].content[0]", content=[{"type": "image_url"}]),
    message("unsupported_parameter", "messages[0].tool_calls", tool_calls=[{"id": "1"}]),
    invalid("model", 5),
    invalid("model", ""),
    invalid("temperature", "hot"),
    invalid("temperature", -0.1),
    invalid("temperature", 2.1, "from 0 to 2"),
    invalid("top_p", 0),
    invalid("top_p", 1.1),
    invalid("top_p", [1]),
    invalid("top_k", -2),
    invalid("top_k", 1.5),
    invalid("min_p", -0.1),
    invalid("min_p", 1.1),
    invalid("seed", 2**63),
    invalid("seed", "lucky"),
    invalid("seed", 1.5),
    invalid("max_tokens", 0),
    invalid("max_tokens", -1),
    invalid("max_tokens", 1.5),
    invalid("max_tokens", "many"),
    invalid("max_completion_tokens", 0),
    Refusal(
        "two limits", {"max_tokens": 1, "max_completion_tokens": 2}, "invalid_value", "max_tokens"
    ),
    invalid("stop", 5),
    invalid("stop", ""),
    invalid("stop", ["a", ""]),
    invalid("stop", ["a", "b", "c", "d", "e"], "up to 4"),
    Refusal("a long stop", {"stop": "x" * 5_000}, "string_above_max_length", "stop"),
    invalid("stream_options", "usage"),
    invalid("n", 0),
    unsupported("n", 2),
    unsupported("logprobs", True),
    invalid("top_logprobs", 21),
    invalid("top_logprobs", 3, "'logprobs'"),
    invalid("frequency_penalty", 3),
    unsupported("frequency_penalty", 0.5),
    invalid("presence_penalty", "some"),
    unsupported("presence_penalty", -0.5),
    invalid("repetition_penalty", 0),
    unsupported("repetition_penalty", 1.1),
    unsupported("logit_bias", {"5": 10}),
    unsupported("tools", [{"type": "function", "function": {"name": "f"}}]),
    invalid("tool_choice", "required"),
    unsupported("functions", [{"name": "f"}]),
    unsupported("function_call", {"name": "f"}),
    unsupported("response_format", {"type": "json_object"}),
    unsupported("modalities", ["audio"]),
    unsupported("audio", {"voice": "alloy"}),
    unsupported("store", True),
    unsupported("web_search_options", {"search_context_size": "low"}),
    unsupported("chat_template_kwargs", {"enable_thinking": False}),
    invalid("metadata", {str(n): "x" for n in range(17)}),
    Refusal("metadata of numbers", {"metadata": {"a": 1}}, "invalid_value", "metadata[...]"),
    invalid("service_tier", "gold"),
    Refusal(
        "an unknown model",
        {"model": "gpt-9"},
        "model_not_found",
        "model",
        404,
        "Models that would work: scripted",
    ),
    Refusal(
        "a prompt over the context",
        {"messages": [{"role": "user", "content": "x" * 9_000}]},
        "context_length_exceeded",
        "messages",
        says=f"{CONTEXT_TOKENS} tokens. However, your messages resulted in 9005 tokens",
    ),
    Refusal(
        "a conversation that the template refuses",
        {"messages": [{"role": "user", "content": "[[refuse=Roles must alternate.]]"}]},
        "template_error",
        "messages",
        says="Roles must alternate.",
    ),
]


def error_in(answer: httpx.Response) -> dict[str, Any]:
    """The error of an answer, in the shape that OpenAI's clients expect."""
    error = answer.json()["error"]
    assert {"message", "type", "param", "code"} <= error.keys()
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")
    return error


def post(server: RunningServer, body: str | bytes, **headers: str) -> httpx.Response:
    return server.client.post(f"{server.base}{CHAT}", content=body, headers=headers)


@STREAMED
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_a_request_that_cannot_be_served_is_refused_by_the_name_of_its_field(
    scripted: RunningServer, refusal: Refusal, stream: bool
) -> None:
    fields = {**scripted.body("hello"), "stream": stream, **refusal.fields}
    body = {name: value for name, value in fields.items() if value is not ...}
    answer = post(scripted, json.dumps(body))
    error = error_in(answer)
    assert (answer.status_code, error["code"], error["param"]) == (
        refusal.status,
        refusal.code,
        refusal.param,
    )
    assert error["type"] == "invalid_request_error"
    assert refusal.says in error["message"]
    assert "retry-after" not in answer.headers


def test_stream_options_belong_to_streams(scripted: RunningServer) -> None:
    answer = scripted.chat("hello", stream_options={"include_usage": True})
    error = error_in(answer)
    assert (answer.status_code, error["code"]) == (400, "invalid_value")
    assert error["param"] == "stream_options"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"stream": true, "model": "scripted", "messages": [}',
        b'{"model": "scripted", "temperature": NaN, "messages": []}',
        b'{"model": "scripted", "messages": [{"role": "user", "content": "\xff"}]}',
        b"[" * 100_000 + b"]" * 100_000,
        b'"text"',
        b"[1]",
    ],
    ids=range(8),
)
def test_a_body_that_is_no_json_object_is_refused(scripted: RunningServer, body: bytes) -> None:
    answer = post(scripted, body)
    error = error_in(answer)
    expected = {413: "request_too_large"}.get(answer.status_code, error["code"])
    assert answer.status_code == (413 if len(body) > 65_536 else 400)
    assert error["code"] == expected
    assert error["code"] in ("invalid_json", "invalid_value", "request_too_large")
    assert error["param"] is None


@STREAMED
@pytest.mark.parametrize("announced", [True, False], ids=["announced", "chunked"])
def test_a_body_over_the_limit_is_refused(
    scripted: RunningServer, stream: bool, announced: bool
) -> None:
    body = json.dumps(scripted.body("x" * 70_000, stream=stream)).encode()

    def pieces() -> Iterator[bytes]:
        yield from (body[at : at + 10_000] for at in range(0, len(body), 10_000))

    answer = scripted.client.post(f"{scripted.base}{CHAT}", content=body if announced else pieces())
    assert (answer.status_code, error_in(answer)["code"]) == (413, "request_too_large")


@STREAMED
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "10.0.0.1"])
def test_a_request_for_another_host_is_refused(
    scripted: RunningServer, host: str, stream: bool
) -> None:
    answer = post(scripted, json.dumps(scripted.body("hi", stream=stream)), host=host)
    assert (answer.status_code, error_in(answer)["code"]) == (421, "host_not_allowed")
    assert scripted.get("/livez").status_code == 200


def test_unknown_paths_methods_and_models_are_refused(scripted: RunningServer) -> None:
    assert scripted.get("/v1/models/none").status_code == 404
    assert scripted.get("/v2/other").status_code == 404
    assert scripted.get(CHAT).status_code == 405
    assert error_in(scripted.get("/v1/models/none"))["code"] == "model_not_found"


def test_no_refusal_at_the_door_leaves_a_job(scripted: RunningServer) -> None:
    before = len(scripted.store.jobs())
    for fields in ({"temperature": 9}, {"model": "gpt-9"}, {"tools": [1]}):
        assert scripted.chat("hello", **fields).status_code in (400, 404)
    assert len(scripted.store.jobs()) == before


# --- no room, no worker ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_row(
    tmp_path_factory: pytest.TempPathFactory, worker_cache: Path
) -> Iterator[RunningServer]:
    """One row, and room for one that waits."""
    with site_in(tmp_path_factory.mktemp("one-row"), worker_cache) as place:
        settings = {"worker.rows": 1, "worker.prefetch": 0, "queue.interactive_max": 1}
        yield place.start({"step_s": 0.01}, settings)


@STREAMED
def test_when_the_queue_is_full_it_says_when_to_come_again(
    one_row: RunningServer, stream: bool
) -> None:
    with Call(one_row, "[[tokens=100000]]") as running:
        running.read_text()
        with Call(one_row, "hello"):
            wait_until(lambda: one_row.metric("jobs_waiting") == 1)
            answer = one_row.chat("hello", stream=stream)
            error = error_in(answer)
            assert (answer.status_code, error["code"]) == (429, "queue_full")
            assert (error["type"], error["param"]) == ("rate_limit_error", None)
            assert answer.headers["retry-after"] == "1"
            assert error["queue"] == {"position": 1}
    one_row.wait_until_idle()
    assert one_row.chat("hello").status_code == 200


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, worker_cache: Path) -> Iterator[RunningServer]:
    """A server whose workers cannot load their model, with one model per test."""
    with site_in(tmp_path_factory.mktemp("broken"), worker_cache) as place:
        for model in ("plain", "stream"):
            place.add_scripted_model(model)
        yield place.start({"load_error": "weights are missing"}, {"worker.restart_limit": 1})


@STREAMED
def test_a_model_that_cannot_start_is_unavailable_for_the_reason_in_its_log(
    broken: RunningServer, stream: bool
) -> None:
    model = "stream" if stream else "plain"
    first = broken.chat("hello", model=model, stream=stream)
    error = error_in(first)
    assert (first.status_code, error["code"]) == (503, "model_unavailable")
    assert error["type"] == "server_error"
    assert "exit code 65" in error["message"]
    assert "weights are missing" in error["message"]
    assert first.headers["x-should-retry"] == "false"
    again = broken.chat("hello", model=model, stream=stream)
    assert (again.status_code, error_in(again)["code"]) == (503, "model_unavailable")
    assert "weights are missing" in error_in(again)["message"]
    assert 50 <= int(again.headers["retry-after"]) <= 61
    jobs = [job for job in broken.store.jobs() if job["model"] == model]
    assert [job["state"] for job in jobs] == ["failed"]


def test_readiness_tells_why_the_default_model_is_not_there(broken: RunningServer) -> None:
    broken.chat("hello")
    answer = broken.get("/readyz")
    assert answer.status_code == 503
    assert "weights are missing" in answer.json()["reason"]
    assert int(answer.headers["retry-after"]) >= 1
    assert broken.get("/livez").status_code == 200


def test_whoever_waits_too_long_for_a_model_is_told_that_it_loads(site: Site) -> None:
    server = site.start({"load_s": 3}, {"server.start_timeout_s": 0.5})

    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(server.chat, "hello", stream=stream) for stream in (False, True)]
        for answer in (result.result() for result in results):
            error = error_in(answer)
            assert (answer.status_code, error["code"]) == (503, "model_loading")
            assert answer.headers["retry-after"] == "5"
    assert {job["state"] for job in server.store.jobs()} == {"failed"}
    assert server.stop() == 0
    assert not site.workers()
