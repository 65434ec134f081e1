"""Endpoints over HTTP: OpenAI's own client manages them, and what is wrong is named."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from app.services.webhooks import endpoints as endpoints_module
from tests.integration.http.doubles import FakeServices
from tests.integration.http.serving import serving
from tests.integration.http.wire import Answer, ask
from tests.integration.webhooks.receiving import Receiver
from tests.integration.webhooks.sending import Sending, sending

PATH = "/v1/webhook_endpoints"


@dataclass
class Server:
    """A server over one open store."""

    hooks: Sending
    port: int

    def client(self) -> openai.AsyncOpenAI:
        base = f"http://127.0.0.1:{self.port}/v1"
        return openai.AsyncOpenAI(api_key="none", base_url=base, max_retries=0)

    async def ask(self, path: str, body: Any = None, method: str | None = None) -> Answer:
        content = None if body is None else json.dumps(body).encode()
        return await ask(self.port, path, content, method=method)

    async def made(self, url: str, **fields: Any) -> dict[str, Any]:
        body = {"name": "hook", "url": url, "event_types": ["job.cancelled"], **fields}
        answer = await self.ask(PATH, body)
        assert answer.status == 200, answer.body
        return answer.json()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Server]:
    async with (
        sending(tmp_path / "data") as hooks,
        serving(FakeServices(reports=hooks)) as running,
    ):
        yield Server(hooks, running.port)


async def test_openais_client_manages_endpoints(server: Server, hook: Receiver) -> None:
    async with server.client() as client:
        types: Any = await client.webhooks.event_types.list()
        assert "response.completed" in types.data
        made = await client.webhooks.create(
            name="books", url=hook.url, event_types=["response.completed"]
        )
        assert made.signing_secret.startswith("whsec_")
        found = await client.webhooks.retrieve(made.id)
        assert (found.name, found.url, found.object) == ("books", hook.url, "webhook_endpoint")
        assert found.signing_secret_hint
        assert not hasattr(found, "signing_secret")
        changed = await client.webhooks.update(made.id, name="ledger")
        assert (changed.name, changed.event_types) == ("ledger", ["response.completed"])
        rotated = await client.webhooks.rotate_secret(made.id)
        assert rotated.signing_secret != made.signing_secret
        sampled = await client.webhooks.test(made.id, event_type="response.completed")
        assert (sampled.status_code, sampled.success) == (200, True)
        (arrival,) = hook.arrivals
        told: Any = client.webhooks.unwrap(
            arrival.body, dict(arrival.headers), secret=rotated.signing_secret
        )
        assert (told.type, told.data.id) == ("response.completed", "resp_sample")
        other = await client.webhooks.create(
            name="other", url=hook.url, event_types=["response.failed"]
        )
        listed = [one.id async for one in client.webhooks.list(limit=1)]
        assert listed == [other.id, made.id]
        assert (await client.webhooks.delete(made.id)).deleted
        with pytest.raises(openai.NotFoundError) as missing:
            await client.webhooks.retrieve(made.id)
        assert missing.value.code == "webhook_endpoint_not_found"


async def test_deliveries_are_listed_with_their_tries_and_sent_again(
    server: Server, hook: Receiver
) -> None:
    made = await server.made(hook.url)
    await server.hooks.end_jobs(3)
    await server.hooks.stands(made["id"], *["delivered"] * 3)
    path = f"{PATH}/{made['id']}"
    page = (await server.ask(f"{path}/deliveries?limit=2")).json()
    assert [one["seq"] for one in page["data"]] == [3, 2]
    assert page["has_more"]
    assert page["data"][0]["attempts"][0]["status"] == 200
    rest = (await server.ask(f"{path}/deliveries?after={page['last_id']}")).json()
    assert ([one["seq"] for one in rest["data"]], rest["has_more"]) == ([1], False)
    assert (await server.ask(f"{path}/deliveries?state=parked")).json()["data"] == []
    replayed = await server.ask(f"{path}/replay", {"event": page["last_id"]})
    assert replayed.json()["replayed"] == 1
    again = await server.ask(f"{path}/replay", {"from": rest["last_id"]})
    assert (again.status, again.json()["replayed"]) == (200, None)
    assert (await server.ask(f"{path}/replay", {"parked": True})).json()["replayed"] == 0
    position = (await server.ask(path)).json()["end"]
    assert position["seq"] == 3


async def test_one_can_be_disabled_and_enabled(server: Server, hook: Receiver) -> None:
    made = await server.made(hook.url)
    path = f"{PATH}/{made['id']}"
    off = (await server.ask(path, {"enabled": False})).json()
    assert (off["enabled"], off["disabled_reason"]) == (False, endpoints_module.DISABLED)
    await server.hooks.end_jobs(1)
    assert hook.arrivals == []
    on = (await server.ask(path, {"enabled": True})).json()
    assert (on["enabled"], on["disabled_reason"]) == (True, None)
    await server.hooks.stands(made["id"], "delivered")


async def test_a_tenant_sees_and_touches_only_its_own(server: Server, hook: Receiver) -> None:
    mine = await server.made(hook.url, tenant="a")
    theirs = await server.made(hook.url, tenant="b")
    listed = (await server.ask(f"{PATH}?tenant=a")).json()["data"]
    assert [one["id"] for one in listed] == [mine["id"]]
    assert len((await server.ask(PATH)).json()["data"]) == 2
    foreign = f"{PATH}/{theirs['id']}"
    for path, body, method in (
        (foreign, None, None),
        (foreign, {"name": "x"}, None),
        (foreign, None, "DELETE"),
        (f"{foreign}/rotate_secret", {}, None),
        (f"{foreign}/test", {}, None),
        (f"{foreign}/replay", {"parked": True}, None),
        (f"{foreign}/deliveries", None, None),
    ):
        answer = await server.ask(f"{path}?tenant=a", body, method)
        assert (answer.status, answer.json()["error"]["code"]) == (
            404,
            "webhook_endpoint_not_found",
        )


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"url": "ftp://x/"}, "url"),
        ({"url": 5}, "url"),
        ({"name": ""}, "name"),
        ({"event_types": []}, "event_types"),
        ({"event_types": ["video.completed"]}, "event_types"),
        ({"event_types": ["drain.completed"], "tenant": "a"}, "event_types"),
        ({"tags": {"": "x"}}, "tags"),
        ({"from": "middle"}, "from"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_what_is_wrong_is_named(
    server: Server, hook: Receiver, change: dict[str, Any], param: str
) -> None:
    body = {"name": "hook", "url": hook.url, "event_types": ["job.failed"], **change}
    answer = await server.ask(PATH, body)
    assert answer.status == 400, answer.body
    assert answer.json()["error"]["param"].startswith(param)


async def test_a_replay_says_what(server: Server, hook: Receiver) -> None:
    made = await server.made(hook.url)
    path = f"{PATH}/{made['id']}/replay"
    for body in ({}, {"event": "evt_1", "parked": True}):
        assert (await server.ask(path, body)).status == 400
    missing = await server.ask(path, {"event": "evt_1"})
    assert missing.json()["error"]["code"] == "webhook_event_not_found"


async def test_there_are_so_many_endpoints_and_no_more(
    server: Server, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints_module, "ENDPOINTS_MAX", 1)
    await server.made(hook.url)
    body = {"name": "hook", "url": hook.url, "event_types": ["job.failed"]}
    answer = await server.ask(PATH, body)
    assert (answer.status, answer.json()["error"]["code"]) == (422, "too_many_webhook_endpoints")


async def test_consumers_of_endpoints_are_nobody_elses_to_see(
    server: Server, hook: Receiver
) -> None:
    await server.made(hook.url)
    assert (await server.ask("/v1/consumers")).json()["data"] == []
