"""Following jobs over HTTP: from any number, any many, and without any power over them."""

import asyncio
import json
from typing import Any

import pytest

from app.domain.errors import JobNotFound, StreamInterrupted
from app.domain.events import Ended, Output
from shared.messages import CloseItem, Finish, OpenItem, Text
from tests.integration.http.doubles import FakeServices, ended, started
from tests.integration.http.job_doubles import completed, job_id, job_view
from tests.integration.http.serving import serving
from tests.integration.http.wire import Client, ask, connect, frames

EVENTS = f"/v1/jobs/{job_id(1)}/events"


def last(seq: int) -> Ended:
    return Ended(seq, ended().ending)


WHOLE = [
    started(),
    Output(2, 0, (OpenItem(0, "message"), Text("Par"), Text("is"), Text(".")), 3),
    Output(6, 0, (CloseItem(0), Finish("stop")), 0),
    last(7),
]


def telling(*events: Any) -> FakeServices:
    """One job, whose followers are handed these events."""
    services = FakeServices(told=list(events))
    services.add(job_view(1))
    return services


def read(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(payload) for payload in frames(stream)]


async def test_a_job_is_followed_from_its_start_to_its_end() -> None:
    services = telling(*WHOLE)
    async with serving(services) as server, connect(server.port) as client:
        answer = await client.ask(EVENTS)
        assert (await client.ask("/livez")).status == 200
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    events = read(answer.body)
    assert [event["seq"] for event in events] == list(range(8))
    assert "".join(event["text"] for event in events if event["type"] == "text") == "Paris."
    assert events[-1]["type"] == "ended"
    assert services.followed_from == [-1]
    assert (await services.followers.get()).closed.is_set()


@pytest.mark.parametrize("starting_after", range(8))
async def test_a_reader_that_comes_back_gets_what_it_does_not_have(starting_after: int) -> None:
    services = telling(*WHOLE)
    async with serving(services) as server:
        whole = read((await ask(server.port, EVENTS)).body)
        rest = read((await ask(server.port, f"{EVENTS}?starting_after={starting_after}")).body)
    assert rest == whole[starting_after + 1 :]
    assert services.followed_from[-1] == starting_after


async def test_a_number_behind_the_end_is_answered_by_an_empty_stream() -> None:
    async with serving(telling(last(7))) as server:
        answer = await ask(server.port, f"{EVENTS}?starting_after=7")
    assert (answer.status, answer.body) == (200, b"")


async def test_the_last_event_id_is_an_alias_that_the_query_overrides() -> None:
    services = telling(*WHOLE)
    async with serving(services) as server:
        header = ("Last-Event-ID: 4",)
        alias = read((await ask(server.port, EVENTS, headers=header)).body)
        query = read((await ask(server.port, f"{EVENTS}?starting_after=5", headers=header)).body)
        empty = await ask(server.port, EVENTS, headers=("Last-Event-ID: ",))
    assert [event["seq"] for event in alias] == [5, 6, 7]
    assert [event["seq"] for event in query] == [6, 7]
    assert read(empty.body)[0]["type"] == "created"


@pytest.mark.parametrize(
    ("query", "headers", "param"),
    [
        ("?starting_after=-1", (), "starting_after"),
        ("?starting_after=x", (), "starting_after"),
        ("?starting_after=", (), "starting_after"),
        ("?starting_after=1&starting_after=2", (), "starting_after"),
        ("?stream=true", (), "stream"),
        ("", ("Last-Event-ID: job_1",), "Last-Event-ID"),
    ],
)
async def test_a_number_that_is_none_is_refused(
    query: str, headers: tuple[str, ...], param: str
) -> None:
    async with serving(telling()) as server:
        answer = await ask(server.port, f"{EVENTS}{query}", headers=headers)
    assert (answer.status, answer.error["param"]) == (400, param)


async def test_events_arrive_as_they_happen() -> None:
    services = telling(started())
    async with serving(services) as server, connect(server.port) as client:
        client.send(EVENTS)
        await client.read_head()
        follower = await services.followers.get()
        await client.read_until(b'"type":"started"')
        follower.push(Output(2, 0, (Text("Hello"),), 1))
        await client.read_until(b'"text":"Hello"}\n\n')
        follower.push(last(3))
        assert read(await client.read_body())[-1]["type"] == "ended"


async def test_silence_is_filled_with_comments() -> None:
    services = telling()
    async with (
        serving(services, keepalive_interval_s=0.5) as server,
        connect(server.port) as client,
    ):
        client.send(EVENTS)
        await client.read_head()
        follower = await services.followers.get()
        follower.stay_silent()
        await client.read_until(b": ping\n\n")
        follower.push(last(1))
        await client.read_body()
    assert set(follower.waits) == {0.5}


@pytest.mark.parametrize("leave", [Client.close, Client.reset, Client.half_close])
async def test_a_reader_that_leaves_changes_nothing_for_the_job(leave: Any) -> None:
    services = telling(started())
    async with serving(services) as server, connect(server.port) as client:
        client.send(EVENTS)
        follower = await services.followers.get()
        await follower.taking.wait()
        leave(client)
        await follower.closed.wait()
        answer = await ask(server.port, f"/v1/jobs/{job_id(1)}")
    assert answer.json()["state"] == "available"
    assert services.tickets.empty()


async def test_many_readers_follow_one_job_each_from_its_own_number() -> None:
    services = telling(*WHOLE)
    async with serving(services) as server:
        streams = await asyncio.gather(
            *(ask(server.port, f"{EVENTS}?starting_after={n % 8}") for n in range(24))
        )
    assert [len(read(stream.body)) for stream in streams] == [7 - n % 8 for n in range(24)]


async def test_a_job_that_is_deleted_meanwhile_is_an_event_error() -> None:
    services = telling(started())
    async with serving(services) as server, connect(server.port) as client:
        client.send(EVENTS)
        await client.read_head()
        (await services.followers.get()).fail(JobNotFound("The job was deleted."))
        stream = await client.read_body()
    assert b"event: error\n" in stream
    assert read(stream)[-1]["error"]["code"] == "job_not_found"


async def test_an_unforeseen_fault_is_an_event_error_that_tells_nothing() -> None:
    services = telling(started())
    async with serving(services) as server, connect(server.port) as client:
        client.send(EVENTS)
        await client.read_head()
        (await services.followers.get()).fail(RuntimeError("secret"))
        stream = await client.read_body()
    assert read(stream)[-1]["error"]["code"] == "internal_error"
    assert b"secret" not in stream


async def test_a_server_that_stops_cuts_the_stream_without_a_word() -> None:
    services = telling(started())
    async with serving(services) as server, connect(server.port) as client:
        client.send(EVENTS)
        await client.read_head()
        (await services.followers.get()).fail(StreamInterrupted())
        stream = await client.read_body()
    assert [event["type"] for event in read(stream)] == ["created", "started"]


async def test_a_stream_that_the_server_cuts_ends_without_a_word(
    expected_complaints: list[str],
) -> None:
    services = telling(started())
    async with serving(services) as server, connect(server.port) as client:
        client.send(EVENTS)
        follower = await services.followers.get()
        await follower.taking.wait()
        server.cut()
        await client.read_head()
        stream = await client.read_body()
        await follower.closed.wait()
    assert [event["type"] for event in read(stream)] == ["created", "started"]
    expected_complaints.append("Exception in ASGI application")


async def test_a_reader_that_stops_reading_is_let_go(expected_complaints: list[str]) -> None:
    services = telling(*(Output(n, 0, (Text("x" * 1000),), 1) for n in range(1, 20_000)))
    async with (
        serving(services, write_timeout_s=0.2) as server,
        connect(server.port, receive_bytes=4096) as client,
    ):
        client.send(EVENTS)
        await client.read_head()
        client.stop_reading()
        follower = await services.followers.get()
        await follower.closed.wait()
    expected_complaints.append("ASGI callable returned without completing response.")


async def test_an_unknown_job_is_a_status_and_no_stream() -> None:
    services = telling()
    services.add(completed(2, tenant="theirs"))
    async with serving(services) as server:
        answer = await ask(server.port, f"/v1/jobs/{job_id(2)}/events")
    assert (answer.status, answer.error["code"]) == (404, "job_not_found")
    assert answer.headers["content-type"].startswith("application/json")
