"""The command line against a server: what is asked, what is printed, how it ends."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog

from app.domain import errors
from app.domain.events import Ended, Output
from app.domain.job import JobClass, JobState
from shared.failures import Failure
from shared.messages import CloseItem, OpenItem, Reasoning, Text
from tests.integration.http.doubles import FakeServices, ended, failed, refused_with, started
from tests.integration.http.job_doubles import completed, job_id, job_view
from tests.integration.http.native.commands import mlxq, running
from tests.integration.http.serving import serving
from tests.integration.http.wire import connect

NOBODY = 1
"""A port that nobody listens on."""


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    """The server's log would go to the standard output of the command."""
    with structlog.testing.capture_logs():
        yield


def last(seq: int) -> Ended:
    return Ended(seq, ended().ending)


def answer(*texts: str) -> list[Any]:
    """A job that thinks, says this and ends."""
    said = Output(5, 0, (OpenItem(1, "message"), *(Text(text) for text in texts)), 3)
    thought = Output(2, 0, (OpenItem(0, "reasoning"), Reasoning("hm"), CloseItem(0)), 1)
    return [started(), thought, said, last(6 + len(texts))]


def telling(*events: Any) -> FakeServices:
    services = FakeServices(told=list(events))
    services.add(job_view(1))
    return services


# --- submit ----------------------------------------------------------------------------------


async def test_submit_prints_the_id_of_the_job() -> None:
    services = FakeServices()
    async with serving(services) as server:
        result = await mlxq(server.port, "submit", "What is the capital of France?")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{job_id(1)}\n", "")
    (draft,) = services.drafts
    assert draft.model == "tiny/model"
    assert [message.content for message in draft.request.messages] == [
        "What is the capital of France?"
    ]


async def test_submit_passes_on_what_it_is_told() -> None:
    services = FakeServices()
    async with serving(services) as server:
        result = await mlxq(
            server.port,
            *("submit", "hello", "--model", "other", "--system", "Be brief."),
            *("--class", "batch", "--priority", "5", "--tenant", "team", "--tag", "run=7=a"),
            *("--tag", "who=me", "--deadline", "60", "--attempt-timeout", "9.5"),
            *("--max-attempts", "3", "--seed", "-1", "--max-tokens", "5", "--temperature", "0.5"),
            *("--top-p", "0.9", "--top-k", "4", "--min-p", "0.1", "--stop", "a", "--stop", "b"),
            *("--scheduled-at", "2030-01-01T02:00:00+02:00", "--no-store"),
        )
    assert result.exit_code == 0, result.stderr
    (draft,) = services.drafts
    assert (draft.model, draft.job_class, draft.priority) == ("other", JobClass.BATCH, 5)
    assert (draft.tenant, draft.tags) == ("team", {"run": "7=a", "who": "me"})
    assert (draft.deadline_s, draft.attempt_timeout_s, draft.max_attempts) == (60.0, 9.5, 3)
    assert draft.scheduled_at == datetime(2030, 1, 1, tzinfo=UTC)
    assert draft.keep_s == 600.0
    request, sampling = draft.request, draft.request.sampling
    assert [message.role for message in request.messages] == ["system", "user"]
    assert (request.max_tokens, request.stop) == (5, ("a", "b"))
    assert (sampling.seed, sampling.temperature) == (2**64 - 1, 0.5)
    assert (sampling.top_p, sampling.top_k, sampling.min_p) == (0.9, 4, 0.1)


async def test_the_text_may_come_on_standard_input() -> None:
    services = FakeServices()
    async with serving(services) as server:
        await mlxq(server.port, "submit", "-", stdin="from a pipe\n")
    assert services.drafts[0].request.messages[0].content == "from a pipe\n"


async def test_messages_or_a_whole_body_may_come_from_a_file(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hello"}]
    listed, whole = tmp_path / "messages.json", tmp_path / "body.json"
    listed.write_text(json.dumps(messages))
    whole.write_text(json.dumps({"model": "other", "messages": messages, "temperature": 0}))
    services = FakeServices()
    async with serving(services) as server:
        for file in (listed, whole):
            result = await mlxq(server.port, "submit", "--file", str(file))
            assert result.exit_code == 0, result.stderr
        piped = await mlxq(server.port, "submit", "-f", "-", stdin=json.dumps(messages))
    assert piped.exit_code == 0
    first, second, third = services.drafts
    assert (first.model, first.request.sampling.temperature) == ("tiny/model", 1.0)
    assert (second.model, second.request.sampling.temperature) == ("other", 0.0)
    assert third.request.messages == first.request.messages == second.request.messages


@pytest.mark.parametrize(
    ("arguments", "stdin", "complaint"),
    [
        ((), None, "either TEXT"),
        (("x", "--file", "-"), "[]", "either TEXT"),
        (("--file", "-"), "nonsense", "not JSON"),
        (("--file", "-"), "5", "an array of messages"),
        (("--file", "no-such-file"), None, "No such file"),
        (("x", "--tag", "run"), None, "KEY=VALUE"),
        (("x", "--tag", "a:b=c"), None, "no colon"),
        (("x", "--scheduled-at", "tomorrow"), None, "write it as"),
        (("x", "--class", "urgent"), None, "urgent"),
        (("x", "--idempotency-key", "日"), None, "ASCII"),
        (("x", "--url", "ftp://x"), None, "no address of a server"),
        (("x", "--url", "http://x:port"), None, "no address of a server"),
    ],
)
async def test_wrong_usage_is_status_2_and_asks_nobody(
    arguments: tuple[str, ...], stdin: str | None, complaint: str
) -> None:
    result = await mlxq(NOBODY, "submit", *arguments, stdin=stdin)
    assert result.exit_code == 2, result.stderr
    assert complaint in result.stderr
    assert result.stdout == ""


async def test_submit_can_print_the_whole_job() -> None:
    async with serving(FakeServices()) as server:
        result = await mlxq(server.port, "submit", "hello", "--json")
    job = json.loads(result.stdout)
    assert (job["id"], job["state"], job["queue"]) == (job_id(1), "available", {"position": 2})


async def test_the_same_key_submits_once() -> None:
    services = FakeServices()
    async with serving(services) as server:
        one = await mlxq(server.port, "submit", "hello", "--idempotency-key", "k")
        two = await mlxq(server.port, "submit", "hello", "--idempotency-key", "k")
        other = await mlxq(server.port, "submit", "bye", "--idempotency-key", "k")
        free = await mlxq(server.port, "submit", "hello")
    assert one.stdout == two.stdout != free.stdout
    assert other.exit_code == 1
    assert "idempotency key" in other.stderr


async def whole_message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = re.findall(rb"content-length: (\d+)", head.lower()) or [b"0"]
    return head + await reader.readexactly(int(length))


@asynccontextmanager
async def losing_answers(port: int, count: int) -> AsyncGenerator[int]:
    """A way to a server on which this many answers to submissions get lost."""
    lost = 0

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal lost
        request = await whole_message(reader)
        async with connect(port) as server:
            server.writer.write(request)
            response = await whole_message(server.reader)
        if request.startswith(b"POST") and lost < count:
            lost += 1
            writer.transport.abort()
        else:
            writer.write(response)
            writer.close()

    proxy = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    async with proxy:
        yield proxy.sockets[0].getsockname()[1]


async def test_an_answer_that_is_lost_is_asked_for_again_and_makes_no_second_job() -> None:
    services = FakeServices()
    async with serving(services) as server, losing_answers(server.port, 2) as port:
        result = await mlxq(port, "submit", "hello", "--model", "m")
    assert (result.exit_code, result.stdout) == (0, f"{job_id(1)}\n")
    assert len(services.views) == 1
    assert len(services.drafts) == 3


async def test_submit_can_print_the_answer_as_it_comes() -> None:
    services = FakeServices(told=answer("Par", "is."))
    async with serving(services) as server:
        result = await mlxq(server.port, "submit", "hello", "--follow")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Paris.\n", "")


# --- what goes wrong -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (errors.ModelNotFound("No such model."), 1),
        (errors.StorageFull("The disk is full."), 1),
        (errors.QueueFull("Too many wait."), 4),
        (errors.ShuttingDown("The server stops."), 4),
        (errors.ServerOverloaded("It cannot keep up."), 4),
    ],
)
async def test_a_refusal_is_one_line_and_says_whether_to_come_again(
    refusal: errors.JobServerError, status: int
) -> None:
    async with serving(refused_with(refusal)) as server:
        result = await mlxq(server.port, "submit", "hello")
    assert (result.exit_code, result.stdout) == (status, "")
    assert result.stderr == f"Error: {refusal.message}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit", "x"),
        ("jobs",),
        ("jobs", "show", "job_1"),
        ("jobs", "retry", "job_1"),
        ("follow", "job_1", "--give-up-after", "0"),
        ("cancel", "job_1"),
        ("drain",),
        ("resume",),
    ],
    ids=" ".join,
)
async def test_without_a_server_the_status_is_3_and_a_cure_is_named(
    arguments: tuple[str, ...],
) -> None:
    result = await mlxq(NOBODY, *arguments)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.count("\n") == 1
    assert "mlxq serve" in result.stderr


async def test_something_else_that_answers_is_not_taken_for_a_server() -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as other:
        result = await mlxq(other.sockets[0].getsockname()[1], "jobs")
    assert result.exit_code == 1
    assert "does not answer as mlxq does" in result.stderr


# --- follow ----------------------------------------------------------------------------------


async def test_follow_prints_the_answer_alone() -> None:
    async with serving(telling(*answer("Pa", "ris", "."))) as server:
        result = await mlxq(server.port, "follow", job_id(1))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Paris.\n", "")


async def test_follow_adds_no_second_line_end() -> None:
    async with serving(telling(*answer("Paris.\n"))) as server:
        result = await mlxq(server.port, "follow", job_id(1))
    assert result.stdout == "Paris.\n"


async def test_follow_can_print_every_event_as_a_line() -> None:
    async with serving(telling(*answer("Par", "is."))) as server:
        result = await mlxq(server.port, "follow", job_id(1), "--json")
        rest = await mlxq(server.port, "follow", job_id(1), "--json", "--from", "6")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["seq"] for event in events] == list(range(9))
    assert [json.loads(line) for line in rest.stdout.splitlines()] == events[6:]


@pytest.mark.parametrize(
    ("ending", "complaint"),
    [
        (failed("worker_crashed", "It died."), "failed: worker_crashed: It died."),
        (ended(JobState.CANCELLED, finish_reason=None), "cancelled"),
    ],
)
async def test_a_job_that_was_not_completed_is_status_1(ending: Ended, complaint: str) -> None:
    async with serving(telling(started(), Output(2, 0, (Text("Par"),), 1), ending)) as server:
        result = await mlxq(server.port, "follow", job_id(1))
    assert (result.exit_code, result.stdout) == (1, "Par\n")
    assert result.stderr == f"{job_id(1)} {complaint}\n"


async def test_follow_from_behind_the_end_tells_the_end() -> None:
    failure = Failure("worker_crashed", "It died.")
    services = telling(last(8))
    services.add(completed(1, state=JobState.FAILED, failure=failure))
    async with serving(services) as server:
        result = await mlxq(server.port, "follow", job_id(1), "--from", "99")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "worker_crashed" in result.stderr


async def test_an_unknown_job_is_status_1() -> None:
    async with serving(telling()) as server:
        result = await mlxq(server.port, "follow", job_id(2))
    assert result.exit_code == 1
    assert "There is no job" in result.stderr


async def test_an_error_in_the_stream_ends_following() -> None:
    services = telling(started())
    async with serving(services) as server:
        following = asyncio.ensure_future(mlxq(server.port, "follow", job_id(1)))
        follower = await services.followers.get()
        await follower.taking.wait()
        follower.fail(errors.JobNotFound("The job was deleted."))
        result = await following
    assert (result.exit_code, result.stderr) == (1, "Error: The job was deleted.\n")


async def test_follow_survives_a_restart_of_the_server_and_prints_nothing_twice() -> None:
    whole = answer("The ", "capital ", "is ", "Paris.")
    before = telling(*whole[:2], Output(5, 0, (OpenItem(1, "message"), Text("The ")), 1))
    after = telling(*whole)
    async with serving(before) as server:
        port = server.port
        async with running(port, "follow", job_id(1), on_terminal=False) as command:
            await command.printed("The ")
            server.stop.set()
            await (await before.followers.get()).closed.wait()
            async with serving(after, on_port=port):
                status, out, err = await command.end()
    assert (status, out, err) == (0, "capital is Paris.\n", "")
    assert after.followed_from == [6]


async def test_follow_takes_a_stream_that_ends_early_for_a_server_that_stops() -> None:
    whole = answer("The ", "capital.")
    services = telling(*whole[:2])
    async with serving(services) as server:
        following = asyncio.ensure_future(mlxq(server.port, "follow", job_id(1)))
        first = await services.followers.get()
        await first.taking.wait()
        services.told = whole
        first.fail(errors.StreamInterrupted())
        result = await following
    assert (result.exit_code, result.stdout) == (0, "The capital.\n")
    assert services.followed_from == [-1, 4]


async def test_follow_gives_up_on_a_server_that_stays_away() -> None:
    services = telling(started())
    async with serving(services) as server:
        following = asyncio.ensure_future(
            mlxq(server.port, "follow", job_id(1), "--give-up-after", "0.2")
        )
        await (await services.followers.get()).taking.wait()
    result = await following
    assert (result.exit_code, result.stdout) == (3, "")
    assert "http://127.0.0.1" in result.stderr


async def test_progress_is_shown_on_a_terminal_only() -> None:
    services = telling(*answer("Paris."))
    async with (
        serving(services) as server,
        running(server.port, "follow", job_id(1), on_terminal=True) as command,
    ):
        status, out, err = await command.end()
    assert (status, out) == (0, "Paris.\n")
    assert err == "started, 7 tokens in the prompt\n"


async def test_an_interrupt_says_how_to_see_the_rest() -> None:
    services = telling(started(), Output(2, 0, (Text("Par"),), 1))
    async with (
        serving(services) as server,
        running(server.port, "follow", job_id(1), on_terminal=False) as command,
    ):
        await command.printed("Par")
        command.interrupt()
        status, _, err = await command.end()
    assert status == 130
    assert f"mlxq follow {job_id(1)} --from 3" in err


# --- jobs and cancel -------------------------------------------------------------------------


def filled(count: int) -> FakeServices:
    services = FakeServices()
    services.add(*(completed(n, tags={"n": str(n)}) for n in range(1, count + 1)))
    return services


async def test_jobs_are_listed_with_or_without_the_word() -> None:
    async with serving(filled(3)) as server:
        short = await mlxq(server.port, "jobs", "--limit", "2")
        long = await mlxq(server.port, "jobs", "list", "--limit", "2")
    assert short.stdout == long.stdout
    lines = [line.split("\t") for line in short.stdout.splitlines()]
    assert lines == [
        [job_id(n), "completed", "background", "tiny/model", "2026-03-01T12:00:00Z", "2"]
        for n in (3, 2)
    ]


async def test_a_long_list_is_fetched_in_pages() -> None:
    async with serving(filled(150)) as server:
        result = await mlxq(server.port, "jobs", "--limit", "120", "--json")
        rest = await mlxq(server.port, "jobs", "--limit", "200", "--after", job_id(31), "--json")
    document = json.loads(result.stdout)
    assert [job["id"] for job in document["jobs"]] == [job_id(n) for n in range(150, 30, -1)]
    assert document["has_more"] is True
    assert len(json.loads(rest.stdout)["jobs"]) == 30
    assert json.loads(rest.stdout)["has_more"] is False


async def test_a_list_is_narrowed() -> None:
    services = filled(3)
    services.add(job_view(4), completed(5, tenant="team", model="other", tags={"n": "a=b"}))
    async with serving(services) as server:
        waiting = await mlxq(server.port, "jobs", "--state", "available", "--state", "running")
        theirs = await mlxq(
            server.port, "jobs", "--tenant", "team", "--tag", "n=a=b", "--model", "other"
        )
        none = await mlxq(server.port, "jobs", "--tag", "n=9")
    assert waiting.stdout.split("\t")[0] == job_id(4)
    assert theirs.stdout.split("\t")[0] == job_id(5)
    assert (none.exit_code, none.stdout) == (0, "")


async def test_a_job_is_shown_with_what_it_said() -> None:
    async with serving(filled(1)) as server:
        shown = await mlxq(server.port, "jobs", "show", job_id(1))
        document = await mlxq(server.port, "jobs", "show", job_id(1), "--json")
        unknown = await mlxq(server.port, "jobs", "show", "../admin/v1/status")
    assert "state: completed\n" in shown.stdout
    assert "tags: n=1\n" in shown.stdout
    assert shown.stdout.endswith("\nParis.\n")
    assert json.loads(document.stdout)["id"] == job_id(1)
    assert (unknown.exit_code, unknown.stdout) == (1, "")


async def test_a_retry_prints_the_new_job() -> None:
    services = filled(1)
    services.add(job_view(9))
    async with serving(services) as server:
        result = await mlxq(server.port, "jobs", "retry", job_id(1))
        running_one = await mlxq(server.port, "jobs", "retry", job_id(9))
    assert (result.exit_code, result.stdout) == (0, f"{job_id(3)}\n")
    assert services.views[job_id(3)].retry_of == job_id(1)
    assert running_one.exit_code == 1


async def test_jobs_are_cancelled_one_by_one() -> None:
    services = FakeServices()
    services.add(job_view(1), completed(2), job_view(3))
    async with serving(services) as server:
        result = await mlxq(server.port, "cancel", job_id(1), "job_x", job_id(2), job_id(3))
        again = await mlxq(server.port, "cancel", job_id(1), "--json")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{job_id(1)} cancelled",
        f"{job_id(2)} completed",
        f"{job_id(3)} cancelled",
    ]
    assert result.stderr == "job_x: There is no job 'job_x'.\n"
    assert again.exit_code == 0
    assert json.loads(again.stdout)["jobs"][0]["state"] == "cancelled"


# --- drain and resume ------------------------------------------------------------------------


async def test_a_drain_is_begun_and_waited_for() -> None:
    services = FakeServices()
    async with serving(services) as server:
        begun = await mlxq(server.port, "drain", "--mode", "checkpoint", "--timeout", "5")
        waited = await mlxq(server.port, "drain", "--wait", "--json")
        resumed = await mlxq(server.port, "resume")
        document = await mlxq(server.port, "resume", "--json")
    assert (begun.exit_code, begun.stdout) == (
        0,
        "drain_1 checkpoint running: 3 in flight, 0 finished, 0 given back, 0 cancelled\n",
    )
    assert services.drains == [("checkpoint", 5.0), ("finish", 30.0)]
    assert (waited.exit_code, waited.stderr) == (0, "")
    assert json.loads(waited.stdout)["finished"] == 3
    assert (resumed.exit_code, resumed.stdout) == (0, "resumed\n")
    assert json.loads(document.stdout)["draining"] is False
    assert not services.draining


async def test_a_drain_that_does_not_complete_is_status_1() -> None:
    services = FakeServices(outcome="failed")
    async with serving(services) as server:
        result = await mlxq(server.port, "drain", "--wait")
    assert result.exit_code == 1
    assert "failed" in result.stdout
