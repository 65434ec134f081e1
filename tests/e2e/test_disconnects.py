"""A client that goes away stops its own row, whatever it waited for, and nobody else's."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.calls import Call, text_of
from tests.e2e.server import RunningServer, site_in
from tests.e2e.store import Row, usage
from tests.waiting import wait_until

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])

CHUNK_TOKENS = 64
CHUNK_S = 0.25
ENDLESS = "[[tokens=100000]]"
NEIGHBOUR = "[[tokens=100]] neighbour"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, worker_cache: Path) -> Iterator[RunningServer]:
    """Two rows and room for one more job in the worker; a prompt's chunk takes its time."""
    with site_in(tmp_path_factory.mktemp("narrow"), worker_cache) as place:
        script = {"step_s": 0.02, "prefill_s": CHUNK_S}
        chunks = {"worker.prefill_chunk_tokens": CHUNK_TOKENS}
        yield place.start(script, {"worker.rows": 2, "worker.prefetch": 1, **chunks})


@pytest.fixture(autouse=True)
def _nobody_is_left(server: RunningServer) -> Iterator[None]:
    yield
    server.wait_until_idle()


def ended_as_cancelled(server: RunningServer, job: str) -> Row:
    """The job, which must have been cancelled and reported once, with nothing left to answer."""
    row = server.store.ended(job)
    assert (row["state"], row["stop_reason"]) == ("cancelled", "cancel")
    (report,) = server.store.reports(job)
    assert report["outcome"] == "cancelled"
    assert usage(report["payload"]["usage"]) == usage(row)
    assert not [command for command in server.store.commands() if command["job"] == job]
    return row


def attempt_of(server: RunningServer, job: str) -> Row:
    (attempt,) = server.store.attempts(job)
    return attempt


@STREAMED
def test_in_the_queue_its_job_never_reaches_a_worker(server: RunningServer, stream: bool) -> None:
    with ExitStack() as stack:
        running = [stack.enter_context(Call(server, f"{ENDLESS} {n}")) for n in range(2)]
        for call in running:
            call.read_text()
        stack.enter_context(Call(server, f"{ENDLESS} prefetched"))
        wait_until(lambda: server.metric("worker_rows") == 3)
        with Call(server, "hello", stream=stream):
            wait_until(lambda: server.metric("jobs_waiting") == 1)
            job = server.store.last_job()["id"]
        row = ended_as_cancelled(server, job)
        assert (row["attempt"], usage(row)) == (0, (0, 0))
        assert server.store.attempts(job) == []
        for call in running:
            call.read_text(20)


@STREAMED
def test_handed_over_but_without_a_row_it_gets_none(server: RunningServer, stream: bool) -> None:
    with ExitStack() as stack:
        running = [stack.enter_context(Call(server, f"{ENDLESS} {n}")) for n in range(2)]
        for call in running:
            call.read_text()
        with Call(server, "hello", stream=stream):
            wait_until(lambda: server.metric("worker_rows") == 3)
            job = server.store.last_job()["id"]
        row = ended_as_cancelled(server, job)
        attempt = attempt_of(server, job)
        assert (attempt["outcome"], attempt["accepted_at"]) == ("stopped", None)
        assert (attempt["prefill_tokens"], attempt["delivered_tokens"]) == (0, 0)
        assert usage(row) == (0, 0)
        for call in running:
            call.read_text(20)


@STREAMED
def test_in_the_prefill_it_stops_within_a_chunk(server: RunningServer, stream: bool) -> None:
    prompt_tokens = 40 * CHUNK_TOKENS
    with Call(server, NEIGHBOUR, seed=1) as neighbour:
        begin = neighbour.read_text()
        with Call(server, "x" * prompt_tokens, stream=stream):
            job = wait_until(lambda: in_prefill(server, 2 * CHUNK_TOKENS), 10)
            seen = attempt_of(server, job)["prefill_tokens"]
        row = ended_as_cancelled(server, job)
        whole = begin + text_of(list(neighbour.events()))
    attempt = attempt_of(server, job)
    assert attempt["outcome"] == "stopped"
    # One chunk was under way, and what the store shows may be one behind.
    assert attempt["prefill_tokens"] - seen <= 2 * CHUNK_TOKENS
    assert usage(row) == (prompt_tokens + 5, 0)
    assert whole == said_alone(server, NEIGHBOUR, seed=1)


@STREAMED
def test_in_the_decode_it_stops_within_a_step(server: RunningServer, stream: bool) -> None:
    with Call(server, NEIGHBOUR, seed=1) as neighbour:
        begin = neighbour.read_text()
        # While token 5 takes its second, the client leaves: that one may still come, no other.
        before = len(server.store.jobs())
        with Call(server, "[[tokens=500]] [[sleep_at=5]] [[sleep_s=1]]", stream=stream):
            wait_until(lambda: len(server.store.jobs()) > before)
            job = server.store.last_job()["id"]
            wait_until(lambda: server.store.attempts(job), 10)
            wait_until(lambda: attempt_of(server, job)["delivered_tokens"] == 5, 10)
        row = ended_as_cancelled(server, job)
        whole = begin + text_of(list(neighbour.events()))
    attempt = attempt_of(server, job)
    assert attempt["outcome"] == "stopped"
    assert attempt["delivered_tokens"] in (5, 6)
    assert row["completion_tokens"] == attempt["delivered_tokens"]
    assert row["prompt_tokens"] == attempt["prompt_tokens"] > 0
    assert whole == said_alone(server, NEIGHBOUR, seed=1)


def test_many_at_once_leave_nothing_behind(server: RunningServer) -> None:
    with ExitStack() as stack:
        for n in range(20):
            stack.enter_context(Call(server, f"{ENDLESS} {n}", stream=bool(n % 2)))
        wait_until(lambda: server.metric("jobs_open") == 20)
    server.wait_until_idle()
    assert {job["state"] for job in server.store.jobs()} <= {"cancelled", "completed"}
    assert server.metric("request_bytes") == 0
    assert server.metric("worker_rows") == 0
    assert server.chat("[[say=still here]]").json()["choices"][0]["message"]["content"]


def in_prefill(server: RunningServer, least: int) -> str | None:
    """The job submitted last, once so many of its prompt tokens are computed."""
    job = server.store.last_job()["id"]
    attempts = server.store.attempts(job)
    return job if attempts and attempts[0]["prefill_tokens"] >= least else None


def said_alone(server: RunningServer, content: str, **fields: Any) -> str:
    return server.chat(content, **fields).json()["choices"][0]["message"]["content"]
