"""A worker that dies takes no server with it, and what it was computing goes on elsewhere."""

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.e2e.calls import Call, error_of, rest_of, text_of
from tests.e2e.server import RunningServer, Site, site_in
from tests.e2e.store import failure_code, job_id, usage
from tests.waiting import wait_until

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
LONG = "[[tokens=100]] ďábelské"
MODELS = ("in-stream", "in-prefill-plain", "in-prefill-stream", "crash_once_at", "lost_at")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, worker_cache: Path) -> Iterator[RunningServer]:
    """A model for each death, since a second one soon after makes the next start wait."""
    with site_in(tmp_path_factory.mktemp("deaths"), worker_cache) as place:
        for model in MODELS:
            place.add_scripted_model(model)
        settings = {"worker.prefill_chunk_tokens": 64}
        yield place.start({"step_s": 0.01, "prefill_s": 0.015}, settings)


@pytest.fixture(scope="module")
def alone(server: RunningServer) -> str:
    """What ``LONG`` is answered with when nobody dies."""
    return server.chat(LONG, seed=1).json()["choices"][0]["message"]["content"]


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


def assert_went_on(server: RunningServer, job: str) -> None:
    """The job was completed by a second attempt; each token counts once, and so does the job."""
    row = server.store.ended(job)
    first, second = server.store.attempts(job)
    assert row["state"] == "completed"
    assert (first["outcome"], second["outcome"]) == ("lost", "finished")
    assert first["generation"] != second["generation"]
    assert usage(row) == (
        first["prompt_tokens"] or second["prompt_tokens"],
        first["delivered_tokens"] + second["delivered_tokens"],
    )
    assert second["replayed_tokens"] == first["delivered_tokens"]
    (report,) = server.store.reports(job)
    assert (report["outcome"], report["complete"]) == ("completed", 1)
    assert report["payload"]["attempts"] == 2


def test_streams_and_a_plain_answer_go_on_over_the_death_of_their_worker(
    server: RunningServer, alone: str
) -> None:
    parent, model = psutil.Process(server.pid).create_time(), "in-stream"
    before = server.store.count()
    with (
        Call(server, LONG, model=model, seed=1) as one,
        Call(server, LONG, model=model, seed=1) as two,
        Call(server, LONG, model=model, seed=1, stream=False) as plain,
    ):
        begun = [call.read_text(30) for call in (one, two)]
        killed(server, model)
        endings = rest_of((one, two))
        whole = plain.body()["choices"][0]["message"]["content"]
    said = [begin + text_of(events) for begin, events in zip(begun, endings, strict=True)]
    assert [*said, whole] == [alone] * 3
    jobs = server.store.jobs()[before:]
    assert len(jobs) == 3
    for job in jobs:
        assert_went_on(server, job["id"])
        assert job["completion_tokens"] == 101
    assert_serves(server, model, parent)


@STREAMED
def test_a_prompt_is_computed_again_after_the_death_of_its_worker(
    server: RunningServer, stream: bool
) -> None:
    parent = psutil.Process(server.pid).create_time()
    model = "in-prefill-stream" if stream else "in-prefill-plain"
    before = server.store.count()
    content = f"{'x' * 3_000} [[say=computed twice]]"
    with Call(server, content, stream=stream, model=model) as call:
        job = server.store.submitted_after(before)
        wait_until(lambda: sum(a["prefill_tokens"] for a in server.store.attempts(job)), 10)
        killed(server, model)
        assert call.status == 200
        if stream:
            assert text_of(list(call.events())) == "computed twice"
        else:
            assert call.body()["choices"][0]["message"]["content"] == "computed twice"
    assert_went_on(server, job)
    assert_serves(server, model, parent)


def test_a_worker_that_crashes_by_itself_is_replaced(server: RunningServer) -> None:
    parent, model = psutil.Process(server.pid).create_time(), "crash_once_at"
    with Call(server, "[[tokens=40]] [[crash_once_at=7]]", model=model) as call:
        assert text_of(list(call.events()))
    job = job_id(call.answer_id)
    assert_went_on(server, job)
    assert [a["delivered_tokens"] for a in server.store.attempts(job)] == [7, 34]
    assert_serves(server, model, parent)


def test_a_worker_that_loses_its_engine_fails_its_row_and_is_replaced(
    server: RunningServer,
) -> None:
    parent, model = psutil.Process(server.pid).create_time(), "lost_at"
    with Call(server, "[[tokens=40]] [[lost_at=7]]", model=model) as call:
        events = list(call.events())
    error = error_of(events)
    assert error is not None
    assert (error["code"], error["type"]) == ("engine_error", "server_error")
    job = server.store.ended(job_id(call.answer_id))
    assert (job["state"], failure_code(job)) == ("failed", "engine_error")
    assert job["completion_tokens"] == 7
    assert len(server.store.reports(job["id"])) == 1
    assert_serves(server, model, parent)


def test_a_failing_row_costs_neither_its_neighbour_nor_its_worker(server: RunningServer) -> None:
    with Call(server, "[[tokens=60]] other") as other:
        other.read_text()
        pid = worker_of(server, server.model).pid
        for order in ("fail_at", "reject_at"):
            with Call(server, f"[[{order}=3]]") as call:
                error = error_of(list(call.events()))
            assert error is not None
            assert error["message"] == "As ordered."
            assert server.chat(f"[[{order}=3]]").status_code == 500
        assert text_of(list(other.events()))
        assert worker_of(server, server.model).pid == pid


def test_whoever_waits_too_long_for_a_replacement_is_told_in_band(site: Site) -> None:
    settings = {"worker.restart_limit": 1, "server.resume_wait_s": 0.3}
    server = site.start({"step_s": 0.01}, settings)
    with (
        Call(server, "[[tokens=100000]]") as stream,
        Call(server, "[[tokens=100000]]", stream=False) as plain,
    ):
        stream.read_text()
        wait_until(lambda: server.metric("tokens_total") > 50)
        at = killed(server, server.model)
        errors = [error_of(list(stream.events())), plain.body()["error"]]
        assert time.monotonic() - at < 0.3 + 1
        assert (stream.status, plain.status) == (200, 500)
    for error in errors:
        assert error is not None
        assert (error["code"], error["type"]) == ("worker_crashed", "server_error")
    for job in server.store.jobs():
        assert (job["state"], failure_code(job)) == ("failed", "worker_crashed")
        (attempt,) = server.store.attempts(job["id"])
        assert job["completion_tokens"] == attempt["delivered_tokens"] > 0
        assert len(server.store.reports(job["id"])) == 1
    assert server.get("/readyz").status_code == 503
    assert server.stop() == 0


def test_a_worker_killed_while_it_loads_is_told_to_all_who_wait_for_it(site: Site) -> None:
    server = site.start({"load_s": 1.5})
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
