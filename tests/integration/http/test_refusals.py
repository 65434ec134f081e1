"""Every refusal, streamed and plain: a status and an error object, and never a 200 first."""

import json
from random import Random
from typing import Any

import pytest

from app.domain import errors
from app.domain.errors import JobServerError
from app.domain.job import JobState
from tests.integration.http.doubles import FakeServices, FakeTicket, ended, failed, said
from tests.integration.http.serving import serving
from tests.integration.http.wire import ask, chat_body, connect

both_modes = pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])


def full() -> errors.QueueFull:
    error = errors.QueueFull("Too many wait.", retry_after_s=2.4)
    error.position = 12
    return error


AT_SUBMISSION: list[tuple[JobServerError, int, str, str, dict[str, str | None]]] = [
    (full(), 429, "rate_limit_error", "queue_full", {"retry-after": "3", "x-should-retry": None}),
    (errors.QueueFull(), 429, "rate_limit_error", "queue_full", {"retry-after": "1"}),
    (
        errors.ModelNotFound("No 'x'. Models: y.", param="model"),
        404,
        "invalid_request_error",
        "model_not_found",
        {"retry-after": None},
    ),
    (errors.ShuttingDown(), 503, "server_error", "shutting_down", {"retry-after": "5"}),
    (
        errors.ModelUnavailable(retry_after_s=240.0),
        503,
        "server_error",
        "model_unavailable",
        {"retry-after": "240", "x-should-retry": "false"},
    ),
    (
        errors.ModelUnavailable(),
        503,
        "server_error",
        "model_unavailable",
        {"retry-after": None, "x-should-retry": "false"},
    ),
    (errors.ModelLoading(), 503, "server_error", "model_loading", {"retry-after": "5"}),
    (errors.ServerOverloaded(), 503, "server_error", "server_overloaded", {"retry-after": "1"}),
    (errors.RequestTooLarge(), 413, "invalid_request_error", "request_too_large", {}),
]


@both_modes
@pytest.mark.parametrize(
    ("refusal", "status", "kind", "code", "headers"),
    AT_SUBMISSION,
    ids=[f"{row[3]}-{i}" for i, row in enumerate(AT_SUBMISSION)],
)
async def test_a_refused_submission(
    refusal: JobServerError,
    status: int,
    kind: str,
    code: str,
    headers: dict[str, str | None],
    stream: bool,
) -> None:
    async with serving(FakeServices(refusal=refusal)) as server:
        answer = await ask(server.port, body=chat_body(stream=stream))
    assert answer.status == status
    assert answer.error["type"] == kind
    assert answer.error["code"] == code
    assert answer.error["param"] == refusal.param
    assert answer.error["message"].startswith(refusal.message)
    assert {name: answer.headers.get(name) for name in headers} == headers
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")


async def test_a_full_queue_says_how_many_wait() -> None:
    async with serving(FakeServices(refusal=full())) as server:
        answer = await ask(server.port, body=chat_body())
    assert "12 requests" in answer.error["message"]
    assert answer.error["queue"] == {"position": 12}


BEFORE_THE_START = [
    ("context_length_exceeded", 400, "invalid_request_error", "context_length_exceeded", None),
    ("template_error", 400, "invalid_request_error", "template_error", None),
    ("model_unavailable", 503, "server_error", "model_unavailable", "false"),
    ("worker_crashed", 500, "server_error", "worker_crashed", "false"),
    ("engine_error", 500, "server_error", "engine_error", None),
    ("prepare_timeout", 504, "server_error", "prepare_timeout", "false"),
    ("deadline_exceeded", 504, "server_error", "deadline_exceeded", "false"),
    ("stream_interrupted", 503, "server_error", "stream_interrupted", None),
    ("shutting_down", 503, "server_error", "shutting_down", None),
    ("a_code_of_a_newer_worker", 500, "server_error", "internal_error", None),
]


@both_modes
@pytest.mark.parametrize(("failure", "status", "kind", "code", "retry"), BEFORE_THE_START)
async def test_a_job_that_fails_before_its_first_token(
    failure: str, status: int, kind: str, code: str, retry: str | None, stream: bool
) -> None:
    def play(ticket: FakeTicket) -> None:
        ticket.start.set_result(failed(failure, "Said by the worker.", "messages"))

    services = FakeServices(play)
    async with serving(services) as server:
        answer = await ask(server.port, body=chat_body(stream=stream))
    ticket = await services.tickets.get()
    assert answer.status == status
    assert answer.error == {
        "message": "Said by the worker.",
        "type": kind,
        "param": "messages",
        "code": code,
    }
    assert answer.headers.get("x-should-retry") == retry
    assert ticket.cancels == 0
    assert ticket.follower.closed.is_set()


async def test_a_job_that_fails_later_still_decides_the_status_of_a_plain_answer() -> None:
    def play(ticket: FakeTicket) -> None:
        ticket.start.set_result(None)
        ticket.follower.push(said("lost"), failed("worker_crashed"))

    async with serving(FakeServices(play)) as server:
        answer = await ask(server.port, body=chat_body())
    assert answer.status == 500
    assert answer.error["code"] == "worker_crashed"


@both_modes
async def test_a_job_that_someone_cancelled_before_it_started(stream: bool) -> None:
    def play(ticket: FakeTicket) -> None:
        ticket.start.set_result(ended(JobState.CANCELLED))

    async with serving(FakeServices(play)) as server:
        answer = await ask(server.port, body=chat_body(stream=stream))
    assert answer.status == 503
    assert "cancelled" in answer.error["message"]


@both_modes
async def test_a_fault_of_ours_is_a_500_that_tells_nothing_but_an_id(stream: bool) -> None:
    async with serving(FakeServices(refusal=RuntimeError("secret path /etc"))) as server:
        answer = await ask(server.port, body=chat_body(stream=stream))
    assert answer.status == 500
    assert answer.error["code"] == "internal_error"
    assert answer.headers["x-request-id"] in answer.error["message"]
    assert b"secret" not in answer.body
    assert set(answer.error) == {"message", "type", "param", "code"}


@both_modes
async def test_a_request_that_is_wrong_never_becomes_a_job(stream: bool) -> None:
    services = FakeServices()
    async with serving(services) as server:
        answer = await ask(server.port, body=chat_body(stream=stream, temperature=3))
    assert answer.status == 400
    assert answer.error["param"] == "temperature"
    assert not services.drafts


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, None),
        ("POST", "/v1/models", 405, "method_not_supported"),
        ("GET", "/v1/chat/completions", 405, "method_not_supported"),
        ("DELETE", "/v1/models/tiny/model", 405, "method_not_supported"),
    ],
)
async def test_paths_and_methods_that_do_not_exist(
    method: str, path: str, status: int, code: str | None
) -> None:
    async with serving(FakeServices()) as server:
        answer = await ask(server.port, path, method=method)
    assert answer.status == status
    assert answer.error["code"] == code
    assert answer.error["type"] == "invalid_request_error"
    assert path in answer.error["message"]
    assert answer.headers["x-request-id"]


async def test_a_body_over_the_limit_is_refused_from_its_length_alone() -> None:
    async with (
        serving(FakeServices(), body_bytes_max=1024) as server,
        connect(server.port) as client,
    ):
        client.writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n")
        client.writer.write(b"Content-Length: 1025\r\n\r\n")
        answer = await client.answer()
    assert answer.status == 413
    assert answer.error["code"] == "request_too_large"
    assert "1024 bytes" in answer.error["message"]


async def test_a_chunked_body_over_the_limit_is_refused_when_it_gets_there() -> None:
    async with (
        serving(FakeServices(), body_bytes_max=1024) as server,
        connect(server.port) as client,
    ):
        client.writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n")
        client.writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            client.writer.write(b"200\r\n" + b" " * 512 + b"\r\n")
        answer = await client.answer()
    assert answer.status == 413


async def test_a_chunked_body_within_the_limit_is_taken() -> None:
    def play(ticket: FakeTicket) -> None:
        ticket.start.set_result(ended())

    body = chat_body()
    async with serving(FakeServices(play)) as server, connect(server.port) as client:
        client.writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n")
        client.writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        client.writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert (await client.answer()).status == 200


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "x"])
async def test_the_content_type_does_not_matter(media_type: str) -> None:
    def play(ticket: FakeTicket) -> None:
        ticket.start.set_result(ended())

    async with serving(FakeServices(play)) as server:
        answer = await ask(server.port, body=chat_body(), headers=(f"Content-Type: {media_type}",))
    assert answer.status == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"   ", "invalid_json"),
        (b"{", "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        (b"[]", "invalid_value"),
        (b'"x"', "invalid_value"),
        (b"null", "invalid_value"),
        (b"[" * 100_000, "invalid_value"),
        (b'{"x":' + b"[" * 100_000, "invalid_json"),
        (b'{"x":' + b'{"a":' * 100_000, "invalid_json"),
        (b'{"model": NaN}', "invalid_json"),
        (b'{"temperature": 1e999}', "invalid_value"),
        (b'{"model":"\\ud800","messages":[]}', "invalid_json"),
        (b'{"n":' + b"9" * 10_000 + b"}", "invalid_value"),
    ],
)
async def test_bodies_that_are_no_request(body: bytes, code: str) -> None:
    async with serving(FakeServices()) as server:
        answer = await ask(server.port, body=body)
    assert answer.status == 400
    assert answer.error["code"] == code, answer.error
    assert answer.error["type"] == "invalid_request_error"


async def test_ignored_fields_are_named_in_a_header_that_nobody_can_break() -> None:
    def play(ticket: FakeTicket) -> None:
        ticket.start.set_result(ended())

    strange: dict[str, Any] = {"echo": 1, "a\r\nset-cookie: x": 2, "é" * 200: 3}
    many = {f"name_{n}": n for n in range(500)}
    for stream in (True, False):
        async with serving(FakeServices(play)) as server:
            fields: dict[str, Any] = {**strange, "prediction": {"a": 1}, "stream": stream}
            few = await ask(server.port, body=chat_body(**fields))
            lots = await ask(server.port, body=chat_body(**many, stream=stream))
        assert few.headers["x-ignored-params"].split(", ") == [
            "echo",
            "a??set-cookie??x",
            "?" * 64,
            "prediction",
        ]
        assert len(lots.headers["x-ignored-params"]) <= 512


async def test_fields_that_are_known_are_not_named_as_ignored() -> None:
    def play(ticket: FakeTicket) -> None:
        ticket.start.set_result(ended())

    async with serving(FakeServices(play)) as server:
        answer = await ask(server.port, body=chat_body(user="me", metadata={"a": "b"}))
    assert "x-ignored-params" not in answer.headers
    assert json.loads(answer.body)["object"] == "chat.completion"


async def test_damaged_bodies_are_the_clients_fault_never_ours() -> None:
    def play(ticket: FakeTicket) -> None:
        ticket.start.set_result(ended())

    whole = chat_body(temperature=1, stop=["é"], metadata={"k": "v"}, stream=False)
    random = Random(20260301)
    async with serving(FakeServices(play)) as server, connect(server.port) as client:
        for _ in range(300):
            damaged = bytearray(whole)
            for _ in range(random.randint(1, 3)):
                damaged[random.randrange(len(damaged))] = random.randrange(256)
            answer = await client.ask(body=bytes(damaged))
            assert answer.status in (200, 400), bytes(damaged)


@pytest.mark.parametrize(
    "path", ["/v1/models/%ff", "/v1/models/%00", "/%2e%2e/x", "/v1/models/a%2Fb"]
)
async def test_strange_paths_are_unknown_paths(path: str) -> None:
    async with serving(FakeServices()) as server:
        answer = await ask(server.port, path)
    assert answer.status == 404
    assert answer.error["type"] == "invalid_request_error"
