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
NEIGHBOUR = "[[tokens=40]] neighbour"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, worker_cache: Path) -> Iterator[RunningServer]:
    """Two rows and room for one more job in the worker; a prompt's chunk takes its time."""
    with site_in(tmp_path_factory.mktemp("narrow"), worker_cache) as place:
        script = {"step_s": 0.02, "prefill_s": CHUNK_S}
        chunks = {"worker.prefill_chunk_tokens": CHUNK_TOKENS}
        yield place.start(script, {"worker.rows": 2, "worker.prefetch": 1, **chunks})


def ended_as_cancelled(server: RunningServer, job: str) -> Row:
    """The job, which must have been cancelled and reported once, with nothing left to answer."""
    row = server.store.ended(job)
    assert row["state"] == "cancelled"
    (report,) = server.store.reports(job)
    assert report["outcome"] == "cancelled"
    assert usage(report["payload"]["usage"]) == usage(row)
    assert not [command for command in server.store.commands() if command["job"] == job]
    return row


def attempt_of(server: RunningServer, job: str) -> Row:
    (attempt,) = server.store.attempts(job)
    return attempt


@pytest.fixture(scope="module")
def alone(server: RunningServer) -> str:
    """What the neighbour says when there is nobody else."""
    return server.chat(NEIGHBOUR, seed=1).json()["choices"][0]["message"]["content"]


@pytest.fixture
def stack(server: RunningServer) -> Iterator[ExitStack]:
    """Whoever is still connected at the end of a test leaves then, and nothing goes on."""
    with ExitStack() as calls:
        yield calls
    server.wait_until_idle()


def submitted(
    server: RunningServer, stack: ExitStack, content: str, **fields: Any
) -> tuple[Call, str]:
    """A request whose job is in the store, and that job's id."""
    before = server.store.count()
    call = stack.enter_context(Call(server, content, **fields))
    return call, server.store.submitted_after(before)


def occupied(server: RunningServer, stack: ExitStack) -> list[Call]:
    """Streams that hold both rows."""
    calls = [submitted(server, stack, f"{ENDLESS} {n}")[0] for n in range(2)]
    for call in calls:
        call.read_text()
    return calls


@STREAMED
def test_in_the_queue_its_job_never_reaches_a_worker(
    server: RunningServer, stack: ExitStack, stream: bool
) -> None:
    running = occupied(server, stack)
    submitted(server, stack, f"{ENDLESS} prefetched")
    call, job = submitted(server, stack, "hello", stream=stream)
    assert server.metric("jobs_waiting") == 1
    call.leave()
    row = ended_as_cancelled(server, job)
    assert (row["attempt"], usage(row)) == (0, (0, 0))
    assert server.store.attempts(job) == []
    for other in running:
        other.read_text(20)


@STREAMED
def test_handed_over_but_without_a_row_it_gets_none(
    server: RunningServer, stack: ExitStack, stream: bool
) -> None:
    running = occupied(server, stack)
    call, job = submitted(server, stack, "hello", stream=stream)
    assert server.store.job(job)["state"] == "running"
    call.leave()
    row = ended_as_cancelled(server, job)
    attempt = attempt_of(server, job)
    assert (attempt["outcome"], attempt["accepted_at"]) == ("stopped", None)
    assert (attempt["prefill_tokens"], attempt["delivered_tokens"]) == (0, 0)
    assert usage(row) == (0, 0)
    for other in running:
        other.read_text(20)


@STREAMED
def test_in_the_prefill_it_stops_within_a_chunk(
    server: RunningServer, stack: ExitStack, alone: str, stream: bool
) -> None:
    prompt_tokens = 40 * CHUNK_TOKENS
    neighbour, _ = submitted(server, stack, NEIGHBOUR, seed=1)
    call, job = submitted(server, stack, "x" * prompt_tokens, stream=stream)
    seen = wait_until(lambda: beyond(2 * CHUNK_TOKENS, computed(server, job)), 10)
    call.leave()
    row = ended_as_cancelled(server, job)
    attempt = attempt_of(server, job)
    assert attempt["outcome"] == "stopped"
    # One chunk was under way, and what the store showed may have been one behind.
    assert attempt["prefill_tokens"] - seen <= 2 * CHUNK_TOKENS
    assert usage(row) == (prompt_tokens + 5, 0)
    assert text_of(list(neighbour.events())) == alone


@STREAMED
def test_in_the_decode_it_stops_within_a_step(
    server: RunningServer, stack: ExitStack, alone: str, stream: bool
) -> None:
    neighbour, _ = submitted(server, stack, NEIGHBOUR, seed=1)
    content = "[[tokens=500]] [[sleep_at=5]] [[sleep_s=0.8]]"
    call, job = submitted(server, stack, content, stream=stream)
    # While token 5 takes its time, the client leaves: that one may still come, no other.
    wait_until(lambda: delivered(server, job) == 5, 10)
    call.leave()
    row = ended_as_cancelled(server, job)
    attempt = attempt_of(server, job)
    assert attempt["outcome"] == "stopped"
    assert attempt["delivered_tokens"] in (5, 6)
    assert row["completion_tokens"] == attempt["delivered_tokens"]
    assert row["prompt_tokens"] == attempt["prompt_tokens"] > 0
    assert text_of(list(neighbour.events())) == alone


def test_many_at_once_leave_nothing_behind(server: RunningServer, stack: ExitStack) -> None:
    for n in range(20):
        stack.enter_context(Call(server, f"{ENDLESS} {n}", stream=bool(n % 2)))
    wait_until(lambda: server.metric("jobs_open") == 20)
    stack.close()
    server.wait_until_idle()
    assert {job["state"] for job in server.store.jobs()} <= {"cancelled", "completed"}
    assert server.metric("request_bytes") == 0
    assert server.metric("worker_rows") == 0
    assert server.chat("[[say=still here]]").json()["choices"][0]["message"]["content"]


def beyond(least: int, count: int) -> int:
    """The count once it has got there, else 0."""
    return count if count >= least else 0


def computed(server: RunningServer, job: str) -> int:
    """Prompt tokens computed so far, as far as the store knows."""
    return sum(attempt["prefill_tokens"] for attempt in server.store.attempts(job))


def delivered(server: RunningServer, job: str) -> int:
    """Completion tokens delivered so far, as far as the store knows."""
    return sum(attempt["delivered_tokens"] for attempt in server.store.attempts(job))
