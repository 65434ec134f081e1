"""Draining over HTTP, and how the server stands."""

import json
from typing import Any

import pytest

from app.domain.view import LoadingView, WorkerView
from tests.integration.http.doubles import FakeServices, State
from tests.integration.http.job_doubles import restart_view
from tests.integration.http.serving import serving
from tests.integration.http.wire import ask

DRAIN = "/admin/v1/drain"
RESUME = "/admin/v1/resume"
STATUS = "/admin/v1/status"


def body(**fields: Any) -> bytes:
    return json.dumps({"mode": "finish", **fields}).encode()


@pytest.mark.parametrize("mode", ["finish", "checkpoint", "cancel"])
async def test_a_drain_is_begun_and_told(mode: str) -> None:
    services = FakeServices()
    async with serving(services) as server:
        answer = await ask(server.port, DRAIN, body(mode=mode, timeout_s=5, scope="server"))
    assert answer.status == 202
    assert answer.json() == {
        "id": "drain_1",
        "object": "drain",
        "mode": mode,
        "scope": "server",
        "state": "running",
        "started_at": "2026-03-01T12:00:00Z",
        "ended_at": None,
        "timeout_s": 5.0,
        "in_flight": 3,
        "finished": 0,
        "given_back": 0,
        "cancelled": 0,
        "reason": None,
    }
    assert services.drains == [(mode, 5.0)]


async def test_a_drain_has_a_timeout_and_a_scope_without_being_told() -> None:
    services = FakeServices()
    async with serving(services) as server:
        await ask(server.port, DRAIN, body())
        await ask(server.port, DRAIN, body(timeout_s=None, scope=None))
        await ask(server.port, DRAIN, body(timeout_s=0))
    assert services.drains == [("finish", 30.0), ("finish", 30.0), ("finish", 0.0)]


@pytest.mark.parametrize(
    ("sent", "code", "param"),
    [
        (b"{}", "missing_required_parameter", "mode"),
        (b"", "invalid_json", None),
        (b"[]", "invalid_value", None),
        (body(mode="now"), "invalid_value", "mode"),
        (body(timeout_s=-1), "invalid_value", "timeout_s"),
        (body(timeout_s="5"), "invalid_value", "timeout_s"),
        (body(scope="model:m"), "unsupported_parameter", "scope"),
        (body(scope="worker:gen_1"), "unsupported_parameter", "scope"),
        (body(scope="moon"), "invalid_value", "scope"),
        (body(scope=""), "invalid_value", "scope"),
        (body(colour="red"), "unknown_parameter", "colour"),
    ],
)
async def test_a_drain_that_makes_no_sense_is_refused_by_its_field(
    sent: bytes, code: str, param: str | None
) -> None:
    services = FakeServices()
    async with serving(services) as server:
        answer = await ask(server.port, DRAIN, sent)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, code, param)
    assert not services.drains


async def test_before_any_drain_there_is_none() -> None:
    async with serving(FakeServices()) as server:
        answer = await ask(server.port, DRAIN)
    assert (answer.status, answer.error["code"]) == (404, "drain_not_found")


async def test_a_drain_tells_its_progress_until_it_has_ended() -> None:
    services = FakeServices()
    async with serving(services) as server:
        await ask(server.port, DRAIN, body())
        told = [(await ask(server.port, DRAIN)).json() for _ in range(5)]
    assert [drain["finished"] for drain in told] == [0, 1, 2, 3, 3]
    assert [drain["state"] for drain in told] == ["running"] * 3 + ["completed"] * 2


async def test_resume_opens_the_server_again_and_may_be_repeated() -> None:
    services = FakeServices()
    async with serving(services) as server:
        await ask(server.port, DRAIN, body())
        draining = (await ask(server.port, STATUS)).json()
        first = await ask(server.port, RESUME, b"")
        again = await ask(server.port, RESUME, b"")
    assert (draining["draining"], draining["drain"]["id"]) == (True, "drain_1")
    assert (first.status, first.json()["draining"]) == (200, False)
    assert (again.status, again.json()["draining"]) == (200, False)


async def test_status_says_whether_a_generation_would_start() -> None:
    services = FakeServices()
    async with serving(services) as server:
        ready = (await ask(server.port, STATUS)).json()
        services.state = State(ready=False, reason="the model is loading")
        loading = (await ask(server.port, STATUS)).json()
    assert ready == {
        "object": "status",
        "draining": False,
        "ready": True,
        "reason": None,
        "drain": None,
        "workers": [],
        "restarts": [],
    }
    assert (loading["ready"], loading["reason"]) == (False, "the model is loading")


async def test_status_tells_of_workers_and_of_what_their_deaths_allow() -> None:
    loading = WorkerView(
        generation="gen_1",
        model="org/model",
        state="starting",
        gate="loading",
        pid=17,
        rows=None,
        running=None,
        held=2,
        loading=LoadingView("weights", 5, 10),
    )
    spent = restart_view("org/model", deaths=3, exhausted=True, next_try_s=60.0, reason="it burnt")
    services = FakeServices(living=(loading,), budgets={"org/model": spent})
    async with serving(services) as server:
        told = (await ask(server.port, STATUS)).json()
    assert told["workers"] == [
        {
            "generation": "gen_1",
            "model": "org/model",
            "state": "starting",
            "gate": "loading",
            "pid": 17,
            "rows": None,
            "running": None,
            "held": 2,
            "loading": {"stage": "weights", "done": 5, "total": 10},
        }
    ]
    assert told["restarts"] == [
        {
            "object": "restart_budget",
            "model": "org/model",
            "deaths": 3,
            "limit": 3,
            "window_s": 60.0,
            "exhausted": True,
            "next_try_s": 60.0,
            "reason": "it burnt",
        }
    ]


@pytest.mark.parametrize("model", ["tiny", "org/model", "a/b/reset"])
async def test_a_models_budget_is_reset_whatever_its_id(model: str) -> None:
    spent = restart_view(model, deaths=3, exhausted=True)
    services = FakeServices(budgets={model: spent})
    async with serving(services) as server:
        answer = await ask(server.port, f"/admin/v1/models/{model}/reset", b"")
    assert (answer.status, answer.json()["exhausted"]) == (200, False)
    assert services.resets == [model]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/admin/v1/models/nobody/reset", 404, "model_not_found"),
        ("/admin/v1/models/tiny", 404, None),
        ("/admin/v1/models/reset", 404, None),
    ],
)
async def test_what_cannot_be_reset(path: str, status: int, code: str | None) -> None:
    services = FakeServices(budgets={"tiny": restart_view("tiny")})
    async with serving(services) as server:
        answer = await ask(server.port, path, b"")
    assert (answer.status, answer.error["code"]) == (status, code)


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        (DRAIN, None),
        (DRAIN, body()),
        (RESUME, b""),
        (STATUS, None),
        ("/admin/v1/models/tiny/reset", b""),
    ],
)
async def test_unknown_query_parameters_are_refused(path: str, sent: bytes | None) -> None:
    async with serving(FakeServices()) as server:
        answer = await ask(server.port, f"{path}?colour=red", sent)
    assert (answer.status, answer.error["param"]) == (400, "colour")
