"""Reports over HTTP: what is refused, what is answered, and what is pushed."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.http.doubles import FakeServices
from tests.integration.http.serving import InProcessServer, serving
from tests.integration.http.wire import Answer, Client, ask, connect, frames
from tests.integration.reports.reading import Reading, reading


@dataclass
class Server:
    """A server over one open store."""

    store: Reading
    server: InProcessServer

    async def ask(
        self, path: str, body: Any = None, *, method: str | None = None, **kwargs: Any
    ) -> Answer:
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        return await ask(self.server.port, path, content, method=method, **kwargs)

    async def create(self, name: str = "c", start: str = "earliest", **fields: Any) -> None:
        answer = await self.ask("/v1/consumers", {"name": name, "from": start, **fields})
        assert answer.status == 201, answer.body

    async def ack(self, seq: int, **fields: Any) -> Answer:
        through = {"epoch": self.store.epoch, "seq": seq}
        return await self.ask("/v1/reports/ack", {"consumer": "c", "through": through, **fields})

    def place(self, seq: int) -> dict[str, Any]:
        return {"epoch": self.store.epoch, "seq": seq}


@asynccontextmanager
async def served(data_dir: Path, **settings: Any) -> AsyncGenerator[Server]:
    async with (
        reading(data_dir) as store,
        serving(FakeServices(reports=store), **settings) as server,
    ):
        yield Server(store, server)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Server]:
    async with served(tmp_path / "data") as running:
        yield running


async def test_a_page_says_how_each_job_ended_and_what_to_acknowledge(server: Server) -> None:
    jobs = await server.store.end_jobs(3)
    await server.create()
    answer = await server.ask("/v1/reports?consumer=c&limit=2")
    page = answer.json()
    assert (answer.status, page["object"], page["has_more"]) == (200, "list", True)
    assert page["next"] == server.place(2)
    assert [report["subject"] for report in page["data"]] == jobs[:2]
    report = page["data"][0]
    assert (report["epoch"], report["seq"], report["revision"]) == (server.store.epoch, 1, 1)
    assert (report["kind"], report["outcome"], report["complete"]) == ("job", "cancelled", True)
    assert report["report"]["job"] == jobs[0]
    assert report["report"]["usage"]["completion_tokens"] == 0
    moved = await server.ack(2, **{"from": server.place(0)})
    assert (moved.status, moved.json()["position"]) == (200, server.place(2))
    assert moved.json()["end"] == server.place(3)
    rest = (await server.ask("/v1/reports?consumer=c")).json()
    assert ([r["subject"] for r in rest["data"]], rest["has_more"]) == (jobs[2:], False)


async def test_consumers_are_made_listed_shown_and_deleted(server: Server) -> None:
    fields = {
        "name": "c",
        "from": "latest",
        "kinds": ["job"],
        "classes": ["batch"],
        "tags": {"a": "b"},
        "include_attached": True,
        "tenant": "acme",
    }
    made = await server.ask("/v1/consumers", fields)
    told = made.json()
    assert made.status == 201
    assert {name: told[name] for name in fields if name != "from"} == {
        name: value for name, value in fields.items() if name != "from"
    }
    assert (told["state"], told["parked_reason"]) == ("live", None)
    assert (await server.ask("/v1/consumers", fields)).status == 200
    other = await server.ask("/v1/consumers", {**fields, "include_attached": False})
    assert (other.status, other.error["code"]) == (422, "consumer_exists")
    for path, count in (("", 1), ("?tenant=acme", 1), ("?tenant=other", 0)):
        listed = (await server.ask(f"/v1/consumers{path}")).json()["data"]
        assert len(listed) == count
    assert (await server.ask("/v1/consumers/c?tenant=acme")).json() == told
    gone = await server.ask("/v1/consumers/c?tenant=other")
    assert (gone.status, gone.error["code"]) == (404, "consumer_not_found")
    deleted = await server.ask("/v1/consumers/c", method="DELETE")
    assert deleted.json() == {"object": "consumer.deleted", "name": "c", "deleted": True}
    assert (await server.ask("/v1/consumers/c", method="DELETE")).status == 404


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"name": ""}, "name"),
        ({"name": "a:b"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": 1}, "name"),
        ({"from": "now"}, "from"),
        ({"from": None}, "from"),
        ({"kinds": []}, "kinds"),
        ({"kinds": ["jobs"]}, "kinds[0]"),
        ({"kinds": ["drain"], "tenant": "acme"}, "kinds"),
        ({"classes": ["slow"]}, "classes[0]"),
        ({"tags": {"": "b"}}, "tags"),
        ({"tags": {"a": 1}}, "tags"),
        ({"tags": {"a": "b" * 600}}, "tags"),
        ({"include_attached": "yes"}, "include_attached"),
        ({"tenant": "a b"}, "tenant"),
        ({"unknown": 1}, "unknown"),
    ],
)
async def test_a_consumer_that_cannot_be_is_refused_by_field(
    server: Server, fields: dict[str, Any], param: str
) -> None:
    answer = await server.ask("/v1/consumers", {"name": "c", "from": "earliest", **fields})
    assert answer.status == 400, answer.body
    assert (answer.error["param"] or "").startswith(param.partition("[")[0])


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("consumer=a%3Ab", "consumer"),
        ("consumer=c&kind=job", "kind"),
        ("consumer=c&after=e%3A1", "after"),
        ("kind=jobs", "kind"),
        ("class=slow", "class"),
        ("tag=a", "tag"),
        ("include_attached=1", "include_attached"),
        ("after=1", "after"),
        ("after=e:x", "after"),
        ("tenant=a%20b", "tenant"),
        ("tenant=acme&kind=drain", "kind"),
        ("offset=1", "offset"),
    ],
)
async def test_a_page_that_cannot_be_is_refused_by_parameter(
    server: Server, query: str, param: str
) -> None:
    answer = await server.ask(f"/v1/reports?{query}")
    assert (answer.status, answer.error["param"]) == (400, param), answer.body


async def test_an_acknowledgement_that_cannot_be_is_refused_and_moves_nothing(
    server: Server,
) -> None:
    await server.store.end_jobs(3)
    await server.create()
    place, other = server.place(1), {"epoch": "other", "seq": 1}
    for body, status, code, param in (
        ({"through": place}, 400, "missing_required_parameter", "consumer"),
        ({"consumer": "c"}, 400, "missing_required_parameter", "through"),
        ({"consumer": "c", "through": {"epoch": "e"}}, 400, None, "through.seq"),
        ({"consumer": "c", "through": {**place, "seq": -1}}, 400, "invalid_value", "through.seq"),
        ({"consumer": "c", "through": place, "x": 1}, 400, "unknown_parameter", "x"),
        ({"consumer": "c", "through": other}, 400, "feed_epoch_changed", None),
        ({"consumer": "c", "through": server.place(4)}, 400, "cursor_ahead", None),
        ({"consumer": "c", "through": place, "from": other}, 400, "feed_epoch_changed", None),
        ({"consumer": "c", "through": server.place(3), "from": server.place(2)}, 412, None, None),
        ({"consumer": "d", "through": place}, 404, "consumer_not_found", None),
    ):
        answer = await server.ask("/v1/reports/ack", body)
        assert answer.status == status, (body, answer.body)
        assert code in (None, answer.error["code"])
        assert answer.error["param"] == param
    assert (await server.ask("/v1/consumers/c")).json()["position"] == server.place(0)
    moved = await server.ack(3, **{"from": server.place(2)})
    assert (moved.error["code"], moved.error["place"]) == ("cursor_moved", server.place(0))


async def test_without_a_consumer_the_feed_is_read_from_any_place(server: Server) -> None:
    jobs = await server.store.end_jobs(4, tags={"team": "a"})
    await server.store.end_a_drain()
    everything = (await server.ask("/v1/reports")).json()
    assert [report["kind"] for report in everything["data"]] == ["job"] * 4 + ["drain"]
    epoch = server.store.epoch
    page = (await server.ask(f"/v1/reports?after={epoch}:2&limit=1")).json()
    assert [report["subject"] for report in page["data"]] == [jobs[2]]
    tagged = (await server.ask("/v1/reports?tag=team:a&kind=job&class=background")).json()
    assert len(tagged["data"]) == 4
    assert (await server.ask("/v1/reports?tenant=other")).json()["data"] == []
    refused = await server.ask("/v1/reports?after=other:1")
    assert (refused.status, refused.error["code"]) == (400, "feed_epoch_changed")


async def test_a_parked_consumer_is_gone_with_the_first_place_that_is_kept(server: Server) -> None:
    await server.store.end_jobs(2)
    await server.create()
    parking = server.store.parking(consumer_expiry_s=1)
    server.store.clock.passes(10_000)
    await parking._pass()
    parking.stop()
    for asked in (
        server.ask("/v1/reports?consumer=c"),
        server.ask("/v1/reports/stream?consumer=c"),
        server.ack(1),
    ):
        answer = await asked
        assert (answer.status, answer.error["code"]) == (410, "consumer_parked")
        assert answer.error["place"] == server.place(1)
    told = (await server.ask("/v1/consumers/c")).json()
    assert (told["state"], told["parked_reason"]) == ("parked", "it was not heard of for 0:00:01")
    await server.create()
    assert (await server.ask("/v1/reports?consumer=c")).status == 200


# --- streams -----------------------------------------------------------------------------------


def events(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(data) for data in frames(stream)]


async def opened(client: Client, query: str, *headers: str) -> None:
    client.send(f"/v1/reports/stream?{query}", headers=headers)
    head = await client.read_head()
    assert head.status == 200
    assert head.headers["content-type"] == "text/event-stream; charset=utf-8"
    await client.read_until(b": reading\n\n")


async def test_reports_are_pushed_as_they_are_committed(server: Server) -> None:
    (before,) = await server.store.end_jobs(1)
    await server.create()
    async with connect(server.server.port) as client:
        await opened(client, "consumer=c")
        seen = await client.read_until(b'"seq":1,')
        (job,) = await server.store.end_jobs(1)
        seen += await client.read_until(b'"seq":2,')
    epoch = server.store.epoch.encode()
    assert seen.startswith(b"id: " + epoch + b":1\nevent: report\ndata: {")
    assert b"\nid: " + epoch + b":2\nevent: report\n" in seen
    assert [event["subject"] for event in events(seen)] == [before, job]


async def test_a_reader_that_comes_back_goes_on_behind_what_it_has_seen(server: Server) -> None:
    await server.store.end_jobs(4)
    await server.create()
    await server.ack(1)
    epoch = server.store.epoch
    for query, header, first in (
        ("consumer=c", (), 2),
        ("consumer=c", (f"Last-Event-ID: {epoch}:3",), 4),
        (f"consumer=c&after={epoch}:2", (f"Last-Event-ID: {epoch}:3",), 3),
        ("consumer=c", (f"Last-Event-ID: {epoch}:0",), 2),
        (f"after={epoch}:0", (), 1),
    ):
        async with connect(server.server.port) as client:
            await opened(client, query, *header)
            seen = await client.read_until(b"\n\n")
            assert events(seen)[0]["seq"] == first, (query, header)


@pytest.mark.parametrize(
    ("query", "header", "code"),
    [
        ("consumer=c", "Last-Event-ID: other:1", "feed_epoch_changed"),
        ("after=other:1", "X: y", "feed_epoch_changed"),
        ("consumer=c", "Last-Event-ID: 17", "invalid_value"),
        ("consumer=none", "X: y", "consumer_not_found"),
        ("consumer=c&limit=1", "X: y", "unknown_parameter"),
    ],
)
async def test_a_stream_that_cannot_be_is_refused_before_it_begins(
    server: Server, query: str, header: str, code: str
) -> None:
    await server.create()
    answer = await server.ask(f"/v1/reports/stream?{query}", headers=(header,))
    assert answer.error["code"] == code
    assert answer.status in (400, 404)


async def test_a_place_ahead_of_the_feed_is_refused(server: Server) -> None:
    await server.create()
    for query in ("consumer=c&", ""):
        path = f"/v1/reports/stream?{query}after={server.store.epoch}:9"
        answer = await server.ask(path)
        assert (answer.status, answer.error["code"]) == (400, "cursor_ahead")


async def test_silence_is_filled_and_the_reader_counts_as_heard(tmp_path: Path) -> None:
    async with served(tmp_path / "data", keepalive_interval_s=0.1) as server:
        await server.create()
        async with connect(server.server.port) as client:
            await opened(client, "consumer=c")
            server.store.clock.passes(100)
            await client.read_until(b": ping\n\n")
            await client.read_until(b": ping\n\n")
        await server.store.settled()
        told = (await server.ask("/v1/consumers/c")).json()
        assert told["seen_at"] > told["created_at"]


async def test_a_stream_is_cut_with_a_word_at_a_stop_and_when_its_consumer_goes(
    server: Server,
) -> None:
    await server.create()
    async with connect(server.server.port) as client, connect(server.server.port) as other:
        await opened(client, "consumer=c")
        await opened(other, "")
        await server.ask("/v1/consumers/c", method="DELETE")
        error = events(await client.read_body())[-1]["error"]
        assert error["code"] == "consumer_not_found"
        server.store.feed.stop()
        ending = await other.read_body()
        assert b"id:" not in ending
        assert events(ending)[-1]["error"]["code"] == "stream_interrupted"


async def test_a_reader_that_leaves_is_let_go(server: Server) -> None:
    await server.create()
    async with connect(server.server.port) as client:
        await opened(client, "consumer=c")
        assert server.store.feed.readers == 1
    await server.ask("/livez")
    async with connect(server.server.port) as client:
        await opened(client, "")
    jobs = await server.store.end_jobs(1)
    assert len((await server.ask("/v1/reports?consumer=c")).json()["data"]) == len(jobs)


async def test_every_operation_is_in_the_document(server: Server) -> None:
    document = (await server.ask("/schema/openapi.json")).json()
    for path, methods in {
        "/v1/reports": {"get"},
        "/v1/reports/ack": {"post"},
        "/v1/reports/stream": {"get"},
        "/v1/consumers": {"get", "post"},
        "/v1/consumers/{name}": {"get", "delete"},
    }.items():
        assert set(document["paths"][path]) == methods
