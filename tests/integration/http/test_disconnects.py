"""A client that leaves, in every way and at every moment: its job is cancelled at once."""

from collections.abc import Callable

import pytest

from tests.integration.http.doubles import FakeServices, FakeTicket, answering, said, starting
from tests.integration.http.serving import serving
from tests.integration.http.wire import Client, chat_body, connect, open_stream

LEAVE = {"close": Client.close, "reset": Client.reset, "half-close": Client.half_close}

every_way = pytest.mark.parametrize("leave", LEAVE.values(), ids=LEAVE.keys())
both_modes = pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])


async def cancelled_and_released(ticket: FakeTicket) -> None:
    await ticket.cancelled.wait()
    await ticket.follower.closed.wait()
    assert ticket.cancels == 1


@both_modes
@every_way
async def test_leaving_while_the_job_waits_cancels_it(
    leave: Callable[[Client], None], stream: bool
) -> None:
    services = FakeServices()
    async with serving(services) as server, connect(server.port) as client:
        client.send(body=chat_body(stream=stream))
        ticket = await services.tickets.get()
        await ticket.start_waited.wait()
        leave(client)
        await cancelled_and_released(ticket)


@both_modes
@every_way
async def test_leaving_while_the_job_runs_cancels_it(
    leave: Callable[[Client], None], stream: bool
) -> None:
    services = FakeServices(starting)
    async with serving(services) as server, connect(server.port) as client:
        client.send(body=chat_body(stream=stream))
        ticket = await services.tickets.get()
        ticket.follower.push(said("x"))
        await ticket.follower.taking.wait()
        leave(client)
        await cancelled_and_released(ticket)


async def test_leaving_during_submission_cancels_what_was_admitted() -> None:
    services = FakeServices()
    async with serving(services) as server, connect(server.port) as client:
        services.admission.clear()
        client.send(body=chat_body())
        await services.submitting.wait()
        client.reset()
        services.admission.set()
        await cancelled_and_released(await services.tickets.get())


async def test_leaving_in_the_middle_of_the_body_submits_nothing() -> None:
    services = FakeServices()
    async with serving(services) as server, connect(server.port) as client:
        client.writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n")
        client.writer.write(b'Content-Length: 100\r\n\r\n{"model":')
        await client.writer.drain()
        client.half_close()
        assert await client.reader.read() == b""
        assert not services.drafts


@both_modes
async def test_a_job_that_was_seen_to_end_is_not_cancelled(stream: bool) -> None:
    services = FakeServices(answering("x"))
    async with serving(services) as server, connect(server.port) as client:
        await client.ask(body=chat_body(stream=stream))
        client.close()
        ticket = await services.tickets.get()
        await ticket.follower.closed.wait()
    assert ticket.cancels == 0


async def test_a_second_request_on_the_same_connection_is_no_disconnect() -> None:
    services = FakeServices()
    async with serving(services) as server, connect(server.port) as client:
        client.send(body=chat_body())
        ticket = await services.tickets.get()
        client.send("/livez")
        await ticket.start_waited.wait()
        answering("x")(ticket)
        assert (await client.answer()).status == 200
        assert (await client.answer()).json() == {"status": "ok"}
    assert ticket.cancels == 0


async def test_a_reader_that_stops_reading_is_treated_as_gone(
    expected_complaints: list[str],
) -> None:
    services = FakeServices(starting)
    async with (
        serving(services, write_timeout_s=0.2) as server,
        open_stream(server.port, receive_bytes=4096) as client,
    ):
        client.stop_reading()
        ticket = await services.tickets.get()
        ticket.follower.push(*(said("x" * 1000) for _ in range(20_000)))
        await cancelled_and_released(ticket)
    expected_complaints.append("ASGI callable returned without completing response.")


async def test_a_slow_reader_holds_up_nobody_else() -> None:
    services = FakeServices(starting)
    async with (
        serving(services) as server,
        open_stream(server.port, receive_bytes=4096) as slow,
    ):
        slow.stop_reading()
        ticket = await services.tickets.get()
        ticket.follower.push(*(said("x" * 1000) for _ in range(20_000)))
        services.script = answering("quick")
        async with connect(server.port) as other:
            answer = await other.ask(body=chat_body())
        assert answer.json()["choices"][0]["message"]["content"] == "quick"
        assert ticket.cancels == 0
