"""Stops and receipts over HTTP: what is refused, to whom, and in which words the rest is told."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from app.domain.errors import StorageFull
from app.domain.job import Usage
from app.domain.receipts import Rank
from app.domain.report_errors import StopIncomplete, WorkerNotFound
from app.http import loopback
from app.services.accounting import Acked
from app.storage.accounting import Receipt
from app.storage.reports import GenerationReport
from shared.ids import ReportId
from tests.integration.http.doubles import FakeServices
from tests.integration.http.serving import InProcessServer, serving
from tests.integration.http.wire import Answer, ask
from tests.integration.storage.making import NOW

PREPARE = "/v1/admin/prepare-stop"


def receipt(rank: Rank = Rank.SEALED, revision: int = 1) -> Receipt:
    report = GenerationReport(
        generation="gen_1",
        outcome="sealed",
        reason="stopped",
        detail=None,
        complete=rank is Rank.SEALED,
        usage=Usage(prompt_tokens=7, completion_tokens=5),
        worker=None,
        model="tiny",
        jobs=2,
        created_at=NOW,
        ready_at=NOW,
        ended_at=NOW + timedelta(seconds=9.75),
    )
    return Receipt(
        id=ReportId("receipt-1"),
        generation="gen_1",
        revision=revision,
        rank=rank,
        acked_revision=0,
        acked_at=None,
        report=report,
    )


@dataclass
class FakeAccounting:
    """Answers as it is told to, and notes what it was asked."""

    refusal: Exception | None = None
    receipts: list[Receipt] = field(default_factory=lambda: [receipt()])
    state: Any = "acked"
    stops: list[tuple[str | None, float, float, bool]] = field(
        default_factory=list[tuple[str | None, float, float, bool]]
    )
    acked: list[tuple[str, int | None]] = field(default_factory=list[tuple[str, int | None]])

    async def prepare_stop(
        self, name: str | None, drain_s: float, abort_s: float, *, force: bool
    ) -> Receipt:
        self.stops.append((name, drain_s, abort_s, force))
        if self.refusal is not None:
            raise self.refusal
        return self.receipts[0]

    async def pending(self, limit: int) -> list[Receipt]:
        return self.receipts[:limit]

    async def ack(self, receipt_id: ReportId, revision: int | None) -> Acked:
        self.acked.append((receipt_id, revision))
        return Acked(receipt_id, revision or 1, self.state)


@pytest.fixture
def accounting() -> FakeAccounting:
    return FakeAccounting()


@pytest.fixture
async def server(accounting: FakeAccounting) -> AsyncGenerator[InProcessServer]:
    async with serving(FakeServices(accounting=accounting)) as running:
        yield running


async def post(server: InProcessServer, path: str, body: Any = None) -> Answer:
    content = b"" if body is None else json.dumps(body).encode()
    return await ask(server.port, path, content)


async def test_a_prepared_stop_answers_in_the_words_of_such_engines(
    server: InProcessServer, accounting: FakeAccounting
) -> None:
    answer = await post(server, PREPARE)
    assert answer.status == 200
    assert answer.json() == {
        "instance_id": "gen_1",
        "model_id": "tiny",
        "prompt_tokens_total": 7,
        "completion_tokens_total": 5,
        "requests_total": 2,
        "uptime_s": 9.75,
        "drain_complete": True,
        "receipt_id": "receipt-1",
        "revision": 1,
        "rank": "sealed",
        "reason": "stopped",
        "detail": None,
    }
    asked = {"worker": "gen_1", "drain_timeout_s": 0, "abort_timeout_s": 3.5, "force": True}
    assert (await post(server, PREPARE, asked)).status == 200
    assert accounting.stops == [(None, 5.0, 10.0, False), ("gen_1", 0, 3.5, True)]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"worker": ""}, "worker"),
        ({"worker": 1}, "worker"),
        ({"drain_timeout_s": -1}, "drain_timeout_s"),
        ({"drain_timeout_s": 601}, "drain_timeout_s"),
        ({"abort_timeout_s": "3"}, "abort_timeout_s"),
        ({"force": 1}, "force"),
        ({"signal": 9}, "signal"),
    ],
)
async def test_a_stop_that_cannot_be_is_refused_by_field(
    server: InProcessServer, accounting: FakeAccounting, body: dict[str, Any], param: str
) -> None:
    answer = await post(server, PREPARE, body)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert accounting.stops == []


async def test_a_stop_that_is_not_complete_says_that_nothing_was_ended(
    server: InProcessServer, accounting: FakeAccounting
) -> None:
    accounting.refusal = StopIncomplete("2 jobs have not come to rest: job_1, job_2")
    answer = await post(server, PREPARE)
    told = answer.json()
    assert answer.status == 503
    assert (told["drain_complete"], told["engine_preserved"]) == (False, True)
    assert told["error"]["code"] == "stop_incomplete"
    assert told["error"]["message"] == "2 jobs have not come to rest: job_1, job_2"
    accounting.refusal = WorkerNotFound()
    answer = await post(server, PREPARE)
    assert (answer.status, answer.error["code"]) == (404, "worker_not_found")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RuntimeError("a fault of ours"), 500, "internal_error"),
        (OSError("no such process"), 500, "internal_error"),
        (StorageFull(), 507, "storage_full"),
    ],
)
async def test_whatever_fails_in_a_stop_says_that_nothing_was_ended(
    server: InProcessServer,
    accounting: FakeAccounting,
    error: Exception,
    status: int,
    code: str,
) -> None:
    accounting.refusal = error
    answer = await post(server, PREPARE)
    told = answer.json()
    assert (answer.status, answer.error["code"]) == (status, code)
    assert (told["drain_complete"], told["engine_preserved"]) == (False, True)


async def test_pending_receipts_are_listed_and_one_that_is_damaged_holds_up_none(
    server: InProcessServer, accounting: FakeAccounting
) -> None:
    damaged = msgspec.structs.replace(receipt(), report=None)
    accounting.receipts = [receipt(Rank.CRASH), damaged, receipt(Rank.SNAPSHOT, 2), receipt()]
    answer = await ask(server.port, "/accounting/pending")
    told = answer.json()["receipts"]
    assert [(r["rank"], r["degraded"], r["bestEffort"], r["drainComplete"]) for r in told] == [
        ("crash", True, False, False),
        ("snapshot", True, True, False),
        ("sealed", False, False, True),
    ]
    first = told[0]
    assert (first["receiptId"], first["instanceId"], first["modelId"]) == (
        "receipt-1",
        "gen_1",
        "tiny",
    )
    assert (first["promptTokensTotal"], first["completionTokensTotal"]) == (7, 5)
    assert (first["uptimeS"], first["createdAt"]) == (9, 1_772_366_409_873)
    assert len((await ask(server.port, "/accounting/pending?limit=1")).json()["receipts"]) == 1
    assert (await ask(server.port, "/accounting/pending?limit=0")).status == 400


async def test_receipts_are_booked_together_or_one_alone(
    server: InProcessServer, accounting: FakeAccounting
) -> None:
    together = {"receipts": [{"id": "a", "revision": 1}, {"id": "b"}]}
    answer = await post(server, "/accounting/ack", together)
    assert answer.json()["receipts"] == [
        {"id": "a", "revision": 1, "state": "acked"},
        {"id": "b", "revision": 1, "state": "acked"},
    ]
    for state, acked, already, stale in (
        ("acked", True, False, False),
        ("already", True, True, False),
        ("stale", True, False, True),
        ("unknown", False, False, False),
    ):
        accounting.state = state
        told = (await post(server, "/accounting/ack", {"receiptId": "c"})).json()
        assert (told["acked"], told["already"], told["stale"]) == (acked, already, stale)
        assert (told["receiptId"], told["revision"]) == ("c", 1)
    assert accounting.acked[:3] == [("a", 1), ("b", None), ("c", None)]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "receipts"),
        ({"receipts": [{"id": "a"}], "receiptId": "a"}, "receipts"),
        ({"receipts": []}, "receipts"),
        ({"receipts": [{"id": "a/b"}]}, "receipts[0].id"),
        ({"receiptId": ""}, "receiptId"),
        ({"receiptId": "a", "revision": 0}, "revision"),
        ({"receiptId": "a", "x": 1}, "x"),
    ],
)
async def test_what_cannot_be_booked_is_refused(
    server: InProcessServer, accounting: FakeAccounting, body: dict[str, Any], param: str
) -> None:
    answer = await post(server, "/accounting/ack", body)
    assert (answer.status, answer.error["param"]) == (400, param), answer.body
    assert accounting.acked == []


def nobody(_host: str) -> bool:
    return False


async def test_nobody_elsewhere_is_answered_and_nothing_is_touched(
    server: InProcessServer, accounting: FakeAccounting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "is_loopback", nobody)
    for answer in (
        await post(server, PREPARE),
        await ask(server.port, "/accounting/pending"),
        await post(server, "/accounting/ack", {"receiptId": "a"}),
    ):
        assert (answer.status, answer.error["code"]) == (403, "loopback_only")
    assert (accounting.stops, accounting.acked) == ([], [])


async def test_the_operations_are_in_the_document(server: InProcessServer) -> None:
    paths = (await ask(server.port, "/schema/openapi.json")).json()["paths"]
    for path in (PREPARE, "/accounting/pending", "/accounting/ack"):
        assert "403" in next(iter(paths[path].values()))["responses"]
