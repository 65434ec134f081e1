"""A worker that dies takes no server with it: whoever waited is told, the next one is served."""

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.calls import Call, error_of, rest_of, text_of
from tests.e2e.server import RunningServer, Site, site_in
from tests.e2e.store import failure_code, job_id
from tests.waiting import wait_until

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
ENDLESS = "[[tokens=100000]]"
ORDERS = {
    "crash_at": ("worker_crashed", "SIGKILL"),
    "exit_at": ("worker_crashed", "exit code 70"),
    "lost_at": ("engine_error", ""),
}
MODELS = ("in-stream", "in-prefill-plain", "in-prefill-stream", *ORDERS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, worker_cache: Path) -> Iterator[RunningServer]:
    """A model for each death, since a second one soon after makes the next start wait."""
    with site_in(tmp_path_factory.mktemp("deaths"), worker_cache) as place:
        for model in MODELS:
            place.add_scripted_model(model)
        settings = {"worker.prefill_chunk_tokens": 64}
        yield place.start({"step_s": 0.01, "prefill_s": 0.05}, settings)


def worker_of(server: RunningServer, model: str) -> psutil.Process:
    """The living worker of this model."""
    sql = "SELECT pid FROM generation WHERE model = ? AND state IN ('starting', 'ready')"
    wait_until(lambda: server.store.rows(f"{sql} AND pid IS NOT NULL", model), 10)
    (row,) = server.store.rows(sql, model)
    return psutil.Process(row["pid"])


def killed(server: RunningServer, model: str) -> float:
    """Kill the model's worker; when that was."""
    worker_of(server, model).send_signal(signal.SIGKILL)
    return time.monotonic()


def assert_serves(server: RunningServer, model: str, parent: float) -> None:
    """The same parent answers, with a new worker."""
    answer = server.chat("[[say=back again]]", model=model)
    assert answer.json()["choices"][0]["message"]["content"] == "back again"
    assert psutil.Process(server.pid).create_time() == parent
    sql = "SELECT state FROM generation WHERE model = ? ORDER BY id"
    assert [row["state"] for row in server.store.rows(sql, model)] == ["gone", "ready"]


def assert_lost(server: RunningServer, job: str) -> None:
    """The job failed by its worker's death, and was reported once, as a lower bound."""
    row = server.store.ended(job)
    assert (row["state"], failure_code(row)) == ("failed", "worker_crashed")
    (attempt,) = server.store.attempts(job)
    assert attempt["outcome"] == "lost"
    assert row["completion_tokens"] == attempt["delivered_tokens"]
    (report,) = server.store.reports(job)
    assert (report["outcome"], report["complete"]) == ("failed", 0)


def test_a_worker_killed_in_a_stream_ends_it_in_band_and_is_replaced(server: RunningServer) -> None:
    parent, model = psutil.Process(server.pid).create_time(), "in-stream"
    with Call(server, ENDLESS, model=model) as one, Call(server, ENDLESS, model=model) as two:
        for call in (one, two):
            call.read_text(20)
        at = killed(server, model)
        endings = rest_of((one, two))
        assert time.monotonic() - at < 1
    for call, events in zip((one, two), endings, strict=True):
        error = error_of(events)
        assert error is not None
        assert (error["code"], error["type"]) == ("worker_crashed", "server_error")
        assert "SIGKILL" in error["message"]
        job = job_id(call.answer_id)
        assert_lost(server, job)
        assert server.store.job(job)["completion_tokens"] > 0
    assert_serves(server, model, parent)


@STREAMED
def test_a_worker_killed_in_a_prefill_is_replaced(server: RunningServer, stream: bool) -> None:
    parent = psutil.Process(server.pid).create_time()
    model = "in-prefill-stream" if stream else "in-prefill-plain"
    before = server.store.count()
    with Call(server, "x" * 6_000, stream=stream, model=model) as call:
        job = server.store.submitted_after(before)
        wait_until(lambda: sum(a["prefill_tokens"] for a in server.store.attempts(job)), 10)
        at = killed(server, model)
        error = last_error(call, stream=stream)
        assert time.monotonic() - at < 1
        assert error["code"] == "worker_crashed"
        assert call.status == (200 if stream else 500)
    assert_lost(server, job)
    assert server.store.job(job)["completion_tokens"] == 0
    assert_serves(server, model, parent)


@pytest.mark.parametrize(("order", "expected"), ORDERS.items())
def test_a_worker_that_dies_by_itself_is_replaced(
    server: RunningServer, order: str, expected: tuple[str, str]
) -> None:
    parent = psutil.Process(server.pid).create_time()
    code, reason = expected
    with Call(server, f"{ENDLESS} [[{order}=7]]", model=order) as call:
        events = list(call.events())
    error = error_of(events)
    assert error is not None
    assert error["code"] == code
    assert reason in error["message"]
    job = server.store.ended(job_id(call.answer_id))
    assert (job["state"], failure_code(job)) == ("failed", code)
    assert job["completion_tokens"] == 7
    assert len(server.store.reports(job["id"])) == 1
    assert_serves(server, order, parent)


def test_a_failing_row_costs_neither_its_neighbour_nor_its_worker(server: RunningServer) -> None:
    with Call(server, "[[tokens=60]] other") as other:
        other.read_text()
        pid = worker_of(server, server.model).pid
        for order in ("fail_at", "reject_at"):
            with Call(server, f"[[{order}=3]]") as call:
                error = last_error(call, stream=True)
                assert error["message"] == "As ordered."
            plain = server.chat(f"[[{order}=3]]")
            assert plain.status_code == 500
        assert text_of(list(other.events()))
        assert worker_of(server, server.model).pid == pid


def test_a_worker_killed_while_it_loads_is_told_to_all_who_wait_for_it(site: Site) -> None:
    server = site.start({"load_s": 4})

    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(server.chat, "hello", stream=stream) for stream in (False, True)]
        wait_until(lambda: server.metric("jobs_waiting") == 2)
        at = killed(server, server.model)
        answers = [result.result() for result in results]
        assert time.monotonic() - at < 1
    for answer in answers:
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (503, "model_unavailable")
        assert "SIGKILL" in error["message"]
    assert {failure_code(job) for job in server.store.jobs()} == {"model_unavailable"}
    assert not any(server.store.attempts(job["id"]) for job in server.store.jobs())
    with Call(server, "hello", stream=False) as call:
        assert worker_of(server, server.model)
        assert call.status == 200
    assert server.stop() == 0


def last_error(call: Call, *, stream: bool) -> dict[str, Any]:
    """The error that the answer ends with, in whichever way."""
    if not stream:
        return call.body()["error"]
    error = error_of(list(call.events()))
    assert error is not None, json.dumps(error)
    return error
