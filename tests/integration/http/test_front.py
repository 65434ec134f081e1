"""What holds for every path: headers, the host check, health, and the document of the API."""

import pytest

from tests.integration.http.doubles import FakeServices, State, answering
from tests.integration.http.serving import serving
from tests.integration.http.wire import ask, chat_body, connect

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - named, never bound
EVERYWHERE = ["/", "/v1/models", "/livez", "/nothing", "/schema/openapi.json"]


@pytest.mark.parametrize("path", EVERYWHERE)
async def test_every_answer_has_our_headers_and_no_cors(path: str) -> None:
    async with serving(FakeServices()) as server:
        answer = await ask(server.port, path, headers=("Origin: http://evil.example",))
    assert answer.headers["x-request-id"].startswith("req_")
    assert answer.headers["openai-version"] == "2020-10-01"
    assert int(answer.headers["openai-processing-ms"]) >= 0
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_request_ids_are_never_the_same() -> None:
    async with serving(FakeServices()) as server, connect(server.port) as client:
        ids = {(await client.ask("/livez")).headers["x-request-id"] for _ in range(20)}
    assert len(ids) == 20


@pytest.mark.parametrize("path", EVERYWHERE)
@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:8000", "127.0.0.1.nip.io", "", "[::2]", None]
)
async def test_a_host_that_is_not_ours_gets_nothing(path: str, host: str | None) -> None:
    async with serving(FakeServices()) as server:
        answer = await ask(server.port, path, host=host)
    assert answer.status == 421
    assert answer.error["code"] == "host_not_allowed"
    assert answer.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8000", "[::1]", "[::1]:80", "box.lan:9"]
)
async def test_hosts_that_are_ours(host: str) -> None:
    async with serving(FakeServices(), allowed_hosts=["Box.LAN"]) as server:
        assert (await ask(server.port, "/livez", host=host)).status == 200


async def test_a_second_host_header_does_not_smuggle_one_in() -> None:
    async with serving(FakeServices()) as server:
        answer = await ask(server.port, "/livez", headers=("Host: evil.example",))
    assert answer.status == 421


async def test_the_address_listened_on_is_ours_unless_it_is_all_of_them() -> None:
    async with serving(FakeServices(), host="192.0.2.7") as server:
        assert (await ask(server.port, "/livez", host="192.0.2.7:8000")).status == 200
    async with serving(FakeServices(), host=EVERY_ADDRESS) as server:
        assert (await ask(server.port, "/livez", host=EVERY_ADDRESS)).status == 421


@pytest.mark.parametrize(
    ("given", "echoed"),
    [("abc-1 2", "abc-1 2"), ("x" * 512, "x" * 512), ("x" * 513, None), ("é", None)],
)
async def test_the_clients_own_request_id_comes_back(given: str, echoed: str | None) -> None:
    header = f"X-Client-Request-Id: {given}"
    async with serving(FakeServices(answering("x"))) as server:
        for path, body in [("/livez", None), ("/nothing", None), (None, chat_body(stream=True))]:
            answer = await ask(server.port, *filter(None, [path]), body=body, headers=(header,))
            assert answer.headers.get("x-client-request-id") == echoed


@pytest.mark.parametrize("path", ["/", "/v1", "/health", "/livez", "/readyz", "/metrics"])
async def test_head_answers_as_get_does_without_a_body(path: str) -> None:
    async with serving(FakeServices()) as server, connect(server.port) as client:
        got = await client.ask(path)
        client.send(path, method="HEAD")
        head = await client.read_head()
        again = await client.ask(path)
    assert got.status == head.status == again.status == 200
    assert head.headers["content-length"] == str(len(got.body))


async def test_readiness_says_why_not() -> None:
    services = FakeServices()
    async with serving(services) as server:
        ready = await ask(server.port, "/readyz")
        services.state = State(ready=False, reason="the model is loading", retry_after_s=2.5)
        loading = await ask(server.port, "/readyz")
        alive = await ask(server.port, "/livez")
    assert (ready.status, ready.json()) == (200, {"ready": True, "reason": None})
    assert (loading.status, loading.json()["reason"]) == (503, "the model is loading")
    assert loading.headers["retry-after"] == "3"
    assert alive.status == 200


async def test_metrics_are_what_prometheus_reads() -> None:
    async with serving(FakeServices()) as server:
        answer = await ask(server.port, "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b"mlxq_up 1" in answer.body


async def test_models_carry_their_context_length() -> None:
    async with serving(FakeServices()) as server:
        answer = await ask(server.port, "/v1/models")
    assert answer.json()["object"] == "list"
    assert answer.json()["data"][0] == {
        "id": "tiny/model",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "mlxq",
        "context_length": 2048,
    }


async def test_options_names_methods_and_invites_no_other_origin() -> None:
    async with serving(FakeServices()) as server, connect(server.port) as client:
        client.send("/v1/chat/completions", method="OPTIONS")
        answer = await client.read_head()
    assert answer.headers["allow"] == "OPTIONS, POST"
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_the_document_describes_the_request_and_its_answers() -> None:
    async with serving(FakeServices()) as server:
        document = (await ask(server.port, "/schema/openapi.json")).json()
    operation = document["paths"]["/v1/chat/completions"]["post"]
    request = operation["requestBody"]["content"]["application/json"]["schema"]
    assert request["required"] == ["model", "messages"]
    temperature = request["properties"]["temperature"]["anyOf"]
    assert {"type": "number", "minimum": 0, "maximum": 2} in temperature
    assert {"200", "400", "404", "413", "429", "500", "503"} <= set(operation["responses"])
    assert "[DONE]" in operation["description"]
    operations = [
        operation["operationId"]
        for path in document["paths"].values()
        for operation in path.values()
    ]
    assert len(operations) == len(set(operations))


async def test_a_request_is_logged_with_its_job_and_never_with_its_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with serving(FakeServices(answering("an answer"))) as server:
        body = chat_body(messages=[{"role": "user", "content": "a secret"}])
        answer = await ask(server.port, body=body, headers=("X-Client-Request-Id: mine",))
    line = capsys.readouterr().out
    assert answer.headers["x-request-id"] in line
    assert "job_00000000000000000000000000000001" in line
    assert "mine" in line
    assert "secret" not in line
    assert "answer" not in line


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://localhost.evil.example"]
)
async def test_a_page_of_another_site_cannot_start_a_job(origin: str) -> None:
    services = FakeServices()
    async with serving(services) as server, connect(server.port) as client:
        answer = await client.ask(body=chat_body(), headers=(f"Origin: {origin}",))
    assert answer.status == 421
    assert not services.drafts


async def test_a_page_of_this_server_may_start_a_job() -> None:
    async with serving(FakeServices(answering())) as server, connect(server.port) as client:
        answer = await client.ask(body=chat_body(), headers=("Origin: http://localhost:3000",))
    assert answer.status == 200
