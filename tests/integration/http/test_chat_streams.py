"""Chat completions that are streamed: order, frames, keep-alives, and how a stream ends."""

import json

import pytest

from app.domain.errors import DeadlineExceeded
from app.domain.job import JobState
from shared.messages import CloseItem, Finish, OpenItem, Reasoning, Text
from tests.integration.http.doubles import (
    FakeServices,
    FakeTicket,
    answering,
    ended,
    failed,
    parts,
    said,
    started,
    starting,
)
from tests.integration.http.serving import serving
from tests.integration.http.wire import ask, chat_body, chunks, connect, frames, open_stream

STREAM = chat_body(stream=True)
ID = "chatcmpl-00000000000000000000000000000001"


async def test_a_stream_is_the_role_then_text_then_one_finish_then_done() -> None:
    async with serving(FakeServices(answering("Hel", "lo"))) as server:
        answer = await ask(server.port, body=STREAM)
    assert answer.status == 200
    common = {
        "id": ID,
        "object": "chat.completion.chunk",
        "created": 1772366400,
        "model": "tiny/model",
        "system_fingerprint": None,
    }

    def chunk(delta: dict[str, object], finish: str | None = None) -> dict[str, object]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**common, "choices": [choice]}

    assert chunks(answer.body) == [
        chunk({"role": "assistant", "content": "", "refusal": None}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, "stop"),
    ]


async def test_the_headers_of_a_stream_keep_proxies_from_holding_it_back() -> None:
    async with serving(FakeServices(answering("x"))) as server:
        answer = await ask(server.port, body=STREAM)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["x-request-id"].startswith("req_")
    assert "content-length" not in answer.headers


async def test_usage_comes_last_when_asked_for_and_is_null_before() -> None:
    body = chat_body(stream=True, stream_options={"include_usage": True})
    async with serving(FakeServices(answering("x", reason="length"))) as server:
        answer = await ask(server.port, body=body)
    *others, last = chunks(answer.body)
    assert [chunk["usage"] for chunk in others] == [None] * 3
    assert others[-1]["choices"][0]["finish_reason"] == "length"
    assert last["choices"] == []
    assert last["id"] == ID
    assert last["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
async def test_without_include_usage_the_key_stands_nowhere(options: object) -> None:
    async with serving(FakeServices(answering("x"))) as server:
        answer = await ask(server.port, body=chat_body(stream=True, stream_options=options))
    assert all("usage" not in chunk for chunk in chunks(answer.body))


async def test_the_tier_used_is_named_when_one_was_asked_for() -> None:
    async with serving(FakeServices(answering("x"))) as server:
        answer = await ask(server.port, body=chat_body(stream=True, service_tier="flex"))
    assert {chunk["service_tier"] for chunk in chunks(answer.body)} == {"default"}


async def test_line_breaks_of_unicode_do_not_break_a_frame() -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x1ff\r\ng"
    async with serving(FakeServices(answering(text))) as server:
        answer = await ask(server.port, body=STREAM)
    assert chunks(answer.body)[1]["choices"][0]["delta"]["content"] == text


async def test_characters_of_several_bytes_arrive_whole() -> None:
    text = 'ďábelské 👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301 日本語 \\ " \x00'
    async with serving(FakeServices(answering(*text))) as server:
        answer = await ask(server.port, body=STREAM)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(answer.body)]
    assert "".join(delta.get("content", "") for delta in deltas) == text


async def test_the_role_is_sent_as_soon_as_the_job_has_started() -> None:
    services = FakeServices(starting)
    async with serving(services) as server, open_stream(server.port) as client:
        assert b'"role":"assistant"' in await client.read_until(b"\n\n")


async def test_a_stream_opens_without_a_first_event_when_the_wait_for_it_is_over() -> None:
    services = FakeServices(lambda ticket: ticket.start.set_result(None))
    async with serving(services) as server, open_stream(server.port) as client:
        ticket = await services.tickets.get()
        ticket.follower.push(failed("context_length_exceeded", "9 tokens > 8", "messages"))
        stream = await client.read_body()
    role, error = chunks(stream)
    assert role["choices"][0]["delta"]["role"] == "assistant"
    assert error == {
        "error": {
            "message": "9 tokens > 8",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }


async def test_a_comment_keeps_a_silent_stream_open() -> None:
    services = FakeServices(starting)
    async with serving(services) as server, open_stream(server.port) as client:
        ticket = await services.tickets.get()
        ticket.follower.stay_silent()
        await client.read_until(b": ping\n\n")
        ticket.follower.push(said("x"), ended())
        assert len(chunks(await client.read_body())) == 2


async def test_the_keep_alive_interval_is_the_setting() -> None:
    waits: list[float] = []

    def record(ticket: FakeTicket) -> None:
        answering("x")(ticket)
        ticket.follower.waits = waits

    async with serving(FakeServices(record), keepalive_interval_s=12.5) as server:
        await ask(server.port, body=STREAM)
    assert waits == [12.5]


@pytest.mark.parametrize(
    ("code", "kind"),
    [("worker_crashed", "server_error"), ("parent_lost", "server_error")],
)
async def test_a_failure_after_the_first_byte_is_told_in_the_stream(code: str, kind: str) -> None:
    services = FakeServices(starting)
    async with serving(services) as server, open_stream(server.port) as client:
        ticket = await services.tickets.get()
        ticket.follower.push(said("Hel"), failed(code, "worker exited (signal 9)"))
        stream = await client.read_body()
    *_, error = chunks(stream)
    assert error["error"]["message"] == "worker exited (signal 9)"
    assert error["error"]["type"] == kind
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert ticket.cancels == 0


async def test_a_finish_is_not_shown_when_the_job_fails_after_it() -> None:
    services = FakeServices(starting)
    async with serving(services) as server, open_stream(server.port) as client:
        ticket = await services.tickets.get()
        ticket.follower.push(parts(Text("x"), Finish("stop")), failed("parent_lost"))
        stream = await client.read_body()
    finishes = [c["choices"][0]["finish_reason"] for c in chunks(stream) if "choices" in c]
    assert finishes == [None, None]


async def test_a_job_cancelled_by_someone_else_ends_its_stream_with_an_error() -> None:
    services = FakeServices(starting)
    async with serving(services) as server, open_stream(server.port) as client:
        ticket = await services.tickets.get()
        ticket.follower.push(ended(JobState.CANCELLED, finish_reason="cancelled"))
        stream = await client.read_body()
    assert chunks(stream)[-1]["error"]["code"] == "stream_interrupted"


@pytest.mark.parametrize(
    ("error", "code"),
    [(DeadlineExceeded(), "deadline_exceeded"), (RuntimeError("secret"), "internal_error")],
)
async def test_a_follower_that_fails_ends_the_stream_and_the_job(
    error: Exception, code: str
) -> None:
    services = FakeServices(starting)
    async with serving(services) as server, open_stream(server.port) as client:
        ticket = await services.tickets.get()
        ticket.follower.fail(error)
        stream = await client.read_body()
        await ticket.cancelled.wait()
    assert chunks(stream)[-1]["error"]["code"] == code
    assert b"secret" not in stream


async def test_items_are_not_shown_and_reasoning_has_a_field_of_its_own() -> None:
    def play(ticket: FakeTicket) -> None:
        ticket.start.set_result(started())
        ticket.follower.push(
            parts(OpenItem(0, "reasoning"), Reasoning("hm"), CloseItem(0)),
            parts(OpenItem(1, "message"), Text("yes"), CloseItem(1), Finish("stop")),
            ended(),
        )

    async with serving(FakeServices(play)) as server:
        answer = await ask(server.port, body=STREAM)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(answer.body)]
    assert deltas[1:] == [{"reasoning_content": "hm"}, {"content": "yes"}, {}]


async def test_a_job_that_ends_without_a_finish_still_has_one() -> None:
    def play(ticket: FakeTicket) -> None:
        ticket.start.set_result(ended(finish_reason="length"))

    async with serving(FakeServices(play)) as server:
        answer = await ask(server.port, body=STREAM)
    assert [c["choices"][0]["finish_reason"] for c in chunks(answer.body)] == [None, "length"]


async def test_a_long_backlog_arrives_in_order() -> None:
    texts = [f"{n} " for n in range(5000)]
    async with serving(FakeServices(answering(*texts))) as server:
        answer = await ask(server.port, body=STREAM)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(answer.body)]
    assert "".join(delta.get("content", "") for delta in deltas) == "".join(texts)


async def test_events_that_wait_together_go_out_in_one_write() -> None:
    services = FakeServices(starting)
    async with serving(services) as server, open_stream(server.port) as client:
        await client.read_until(b"\n\n")
        ticket = await services.tickets.get()
        ticket.follower.push(said("a"), said("b"), said("c"))
        assert len(frames(await client.read_chunk())) == 3


async def test_the_connection_can_be_used_again_after_a_stream() -> None:
    async with serving(FakeServices(answering("x"))) as server, connect(server.port) as client:
        for _ in range(3):
            answer = await client.ask(body=STREAM)
            assert frames(answer.body)[-1] == "[DONE]"


async def test_a_stream_that_the_server_cuts_says_so(expected_complaints: list[str]) -> None:
    services = FakeServices(starting)
    async with serving(services) as server, open_stream(server.port) as client:
        ticket = await services.tickets.get()
        await ticket.follower.taking.wait()
        server.cut()
        stream = await client.read_body()
    error = json.loads(frames(stream)[-2])["error"]
    assert error["code"] == "stream_interrupted"
    assert frames(stream)[-1] == "[DONE]"
    assert ticket.follower.closed.is_set()
    expected_complaints.append("Exception in ASGI application")
