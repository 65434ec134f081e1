"""`mlxq webhooks`, and what `mlxq doctor` says of them."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from app.cli.doctor_webhooks import check_webhooks
from app.domain.webhooks import Change
from app.storage.verify import verify_file
from tests.integration.http.doubles import FakeServices
from tests.integration.http.native.commands import mlxq
from tests.integration.http.serving import serving
from tests.integration.storage.verify.test_verify import plant
from tests.integration.webhooks.receiving import Receiver
from tests.integration.webhooks.sending import sending
from tests.integration.webhooks.test_over_http import Server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Server]:
    async with (
        sending(tmp_path / "data", give_up_s=0.0) as hooks,
        serving(FakeServices(reports=hooks)) as running,
    ):
        yield Server(hooks, running.port)


async def run(server: Server, *arguments: str) -> tuple[int, list[list[str]]]:
    """Exit status, and the cells of each line on standard output."""
    result = await mlxq(server.port, "webhooks", *arguments)
    return result.exit_code, [line.split("\t") for line in result.stdout.splitlines()]


async def test_an_endpoint_from_its_making_to_its_end(server: Server, hook: Receiver) -> None:
    status, [[endpoint, secret]] = await run(server, "add", hook.url)
    assert (status, secret[:6]) == (0, "whsec_")
    assert (await run(server, "test", endpoint))[1][0][0] == "200"
    hook.behaves = lambda _: "error"
    assert (await run(server, "test", endpoint))[0] == 1
    (job,) = await server.hooks.end_jobs(1)
    await server.hooks.stands(endpoint, "parked")
    (listed,) = (await run(server, "list"))[1]
    assert listed == [endpoint, "enabled", hook.url, "0 ahead", "0 waiting", "1 parked"]
    (delivery,) = (await run(server, "deliveries", endpoint, "--state", "parked"))[1]
    assert delivery[1:] == ["job.cancelled", "parked", "1", "500"]
    assert (await run(server, "replay", endpoint))[0] == 2
    hook.behaves = lambda _: "ok"
    assert (await run(server, "replay", endpoint, "--parked"))[1] == [["sending again: 1"]]
    await server.hooks.stands(endpoint, "delivered")
    assert hook.arrivals[-1].event["data"]["id"] == job
    assert (await run(server, "replay", endpoint, "--from", delivery[0]))[1] == [["sending again"]]
    ((_, renewed),) = (await run(server, "rotate", endpoint, "--keep-old"))[1]
    assert renewed != secret
    assert (await run(server, "disable", endpoint))[1][0][1].startswith("disabled: ")
    assert (await run(server, "enable", endpoint))[1][0][1] == "enabled"
    assert (await run(server, "rm", endpoint))[0] == 0
    assert await run(server, "list") == (0, [])
    assert (await run(server, "rm", endpoint))[0] == 1


async def test_filters_are_those_of_consumers(server: Server, hook: Receiver) -> None:
    chosen = ("--event", "job.failed", "--class", "batch", "--tag", "a=b", "--attached")
    result = await mlxq(server.port, "webhooks", "add", hook.url, *chosen, "--json")
    made = json.loads(result.stdout)
    assert made["event_types"] == ["job.failed"]
    assert (made["classes"], made["tags"], made["include_attached"]) == (
        ["batch"],
        {"a": "b"},
        True,
    )


async def test_the_doctor_names_what_is_disabled_and_what_was_given_up(
    tmp_path: Path, hook: Receiver
) -> None:
    hook.behaves = lambda _: "error"
    async with sending(tmp_path / "data", give_up_s=0.0) as hooks:
        path = hooks.database.path
        assert check_webhooks(path) == []
        made = (await hooks.endpoint(hook.url)).endpoint
        (fine,) = check_webhooks(path)
        assert (fine.state, fine.detail[:11]) == ("fine", "1 endpoints")
        await hooks.end_jobs(2)
        await hooks.stands(made.id, "parked", "parked")
        await hooks.endpoints.update(made.id, None, Change(enabled=False))
        disabled, parked = check_webhooks(path)
        assert disabled.state == parked.state == "problem"
        assert f"mlxq webhooks enable {made.id}" in disabled.cure
        assert f"mlxq webhooks replay {made.id} --parked" in parked.cure


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("DELETE FROM delivery", "was neither delivered nor set aside"),
        ("UPDATE webhook_event SET body = x'7b7d'", "is not what was written"),
        ("DELETE FROM consumer", "has no consumer"),
        ("UPDATE delivery SET seq = 9, state = 'parked'", "lies ahead of where it stands"),
        ("DELETE FROM delivery; DELETE FROM webhook_endpoint", "an endpoint that is not there"),
    ],
)
async def test_what_cannot_be_is_found(
    hooks_at: Path, hook: Receiver, script: str, message: str
) -> None:
    async with sending(hooks_at) as hooks:
        made = (await hooks.endpoint(hook.url)).endpoint
        await hooks.end_jobs(1)
        await hooks.stands(made.id, "delivered")
        path = hooks.database.path
    assert verify_file(path).violations == []
    plant(path, script)
    assert any(message in violation.message for violation in verify_file(path).violations)


@pytest.fixture
def hooks_at(tmp_path: Path) -> Path:
    return tmp_path / "data"
