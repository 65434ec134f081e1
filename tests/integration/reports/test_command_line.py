"""`mlxq reports`: printed, followed, acknowledged, handed to commands."""

import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.http.native.commands import mlxq, running
from tests.integration.reports.test_over_http import Server, served


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Server]:
    async with served(tmp_path / "data") as here:
        yield here


async def run(server: Server, *arguments: str) -> tuple[int, list[str], str]:
    """Exit status, lines on standard output, and what was complained of."""
    result = await mlxq(server.server.port, "reports", *arguments)
    return result.exit_code, result.stdout.splitlines(), result.stderr


def subjects(lines: list[str]) -> list[str]:
    return [line.split("\t")[2] for line in lines]


async def position(server: Server) -> int:
    return (await server.ask("/v1/consumers/c")).json()["position"]["seq"]


async def acknowledged(server: Server, seq: int) -> None:
    """Wait until the consumer stands there."""
    for _ in range(1_000):
        if await position(server) == seq:
            return
    raise AssertionError(f"it stands at {await position(server)}")


def command(script: str, *arguments: str) -> str:
    return shlex.join([sys.executable, "-c", script, *arguments])


async def test_everything_that_is_kept_is_printed_a_line_each(server: Server) -> None:
    jobs = await server.store.end_jobs(130)
    await server.store.end_a_drain()
    status, lines, _ = await run(server)
    assert (status, subjects(lines)[:-1]) == (0, jobs)
    assert lines[0].split("\t") == ["1", "job", jobs[0], "cancelled", "-", "0"]
    assert lines[-1].split("\t")[1:4] == ["drain", "drain_130", "completed"]
    status, lines, _ = await run(server, "--after", f"{server.store.epoch}:129", "--kind", "job")
    assert (status, subjects(lines)) == (0, jobs[129:])


async def test_with_json_every_report_is_one_line(server: Server) -> None:
    (job,) = await server.store.end_jobs(1, tags={"a": "b"})
    await server.store.end_jobs(1)
    status, lines, _ = await run(server, "--json", "--tag", "a=b")
    assert status == 0
    (report,) = map(json.loads, lines)
    assert (report["subject"], report["report"]["tags"]) == (job, {"a": "b"})


async def test_a_consumer_sees_the_same_until_it_acknowledges(server: Server) -> None:
    jobs = await server.store.end_jobs(3)
    reading = ("--consumer", "c", "--from", "earliest")
    status, lines, _ = await run(server, *reading)
    assert (status, subjects(lines)) == (0, jobs)
    assert (await run(server, *reading))[1] == lines
    assert await position(server) == 0
    assert (await run(server, "--consumer", "c", "--ack"))[1] == lines
    assert await position(server) == 3
    assert await run(server, "--consumer", "c", "--ack") == (0, [], "")
    more = await server.store.end_jobs(250)
    status, lines, _ = await run(server, "--consumer", "c", "--ack")
    assert (subjects(lines), await position(server)) == (more, 253)


async def test_a_consumer_with_more_than_a_page_before_it_is_told_so(server: Server) -> None:
    await server.store.end_jobs(101)
    reading = ("--consumer", "c", "--from", "earliest")
    status, lines, told = await run(server, *reading)
    assert (status, len(lines)) == (0, 100)
    assert "--ack goes on to them" in told
    status, lines, told = await run(server, "--consumer", "c", "--ack")
    assert (status, len(lines), told) == (0, 101, "")


async def test_a_consumer_is_created_with_its_filters_and_only_when_asked(server: Server) -> None:
    await server.store.end_jobs(2)
    status, _, complaint = await run(server, "--consumer", "c")
    assert status == 1
    assert "There is no such consumer" in complaint
    status, lines, _ = await run(
        server, "--consumer", "c", "--from", "earliest", "--tag", "a=b", "--attached", "--ack"
    )
    assert (status, lines, await position(server)) == (0, [], 2)
    told = (await server.ask("/v1/consumers/c")).json()
    assert (told["tags"], told["include_attached"]) == ({"a": "b"}, True)
    status, _, complaint = await run(server, "--consumer", "c", "--from", "latest")
    assert status == 1
    assert "reads other reports" in complaint


@pytest.mark.parametrize(
    "arguments",
    [
        ("--ack",),
        ("--exec", "true"),
        ("--from", "latest"),
        ("--consumer", "c", "--after", "e:1"),
        ("--consumer", "c", "--kind", "job"),
    ],
)
async def test_what_makes_no_sense_is_wrong_usage(
    server: Server, arguments: tuple[str, ...]
) -> None:
    assert (await run(server, *arguments))[0] == 2


async def test_a_command_runs_for_each_report_which_is_then_acknowledged(
    server: Server, tmp_path: Path
) -> None:
    jobs = await server.store.end_jobs(3)
    done = tmp_path / "done"
    script = "import sys,json; open(sys.argv[1],'a').write(json.load(sys.stdin)['subject']+'\\n')"
    doing = ("--consumer", "c", "--from", "earliest", "--exec", command(script, str(done)))
    assert await run(server, *doing) == (0, [], "")
    assert (done.read_text().split(), await position(server)) == (jobs, 3)
    assert await run(server, *doing) == (0, [], "")
    assert done.read_text().split() == jobs


async def test_a_command_that_fails_ends_it_and_its_report_is_not_acknowledged(
    server: Server, tmp_path: Path
) -> None:
    jobs = await server.store.end_jobs(3)
    script = "import sys,json; sys.exit(json.load(sys.stdin)['seq'] == 2)"
    status, _, complaint = await run(
        server, "--consumer", "c", "--from", "earliest", "--exec", command(script)
    )
    assert (status, await position(server)) == (1, 1)
    assert "ended with 1 for report" in complaint
    assert f"{server.store.epoch}:2" in complaint
    status, lines, _ = await run(server, "--consumer", "c")
    assert subjects(lines) == jobs[1:]
    missing = ("--consumer", "c", "--exec", "/no/such/program")
    status, _, complaint = await run(server, *missing)
    assert status == 1
    assert "cannot be run" in complaint


async def test_reports_are_followed_and_acknowledged_as_they_come(server: Server) -> None:
    (first,) = await server.store.end_jobs(1)
    arguments = ("reports", "--consumer", "c", "--from", "earliest", "--follow", "--ack")
    async with running(server.server.port, *arguments, on_terminal=False) as following:
        await following.printed(first)
        (second,) = await server.store.end_jobs(1)
        await following.printed(second)
        await acknowledged(server, 2)
        following.interrupt()
        status, _, complaint = await following.end()
    assert status == 130
    assert "shown again" in complaint


async def test_a_parked_consumer_says_what_is_left(server: Server) -> None:
    await server.store.end_jobs(2)
    await server.create()
    parking = server.store.parking(consumer_expiry_s=1)
    server.store.clock.passes(10_000)
    await parking._pass()
    parking.stop()
    status, _, complaint = await run(server, "--consumer", "c")
    assert status == 1
    assert "The consumer was parked" in complaint
    assert "the lowest report that is kept is 1" in complaint


async def test_two_who_read_as_one_consumer_are_told(server: Server) -> None:
    await server.store.end_jobs(3)
    await server.create()
    script = (
        "import json,sys,urllib.request as u\n"
        "place = json.load(sys.stdin)\n"
        "body = {'consumer': 'c', 'through': {'epoch': place['epoch'], 'seq': 3}}\n"
        "u.urlopen(u.Request(sys.argv[1], json.dumps(body).encode()))\n"
    )
    url = f"http://127.0.0.1:{server.server.port}/v1/reports/ack"
    doing: Any = ("--consumer", "c", "--exec", command(script, url))
    status, _, complaint = await run(server, *doing)
    assert status == 1
    assert "stands at 3, not where `from` says" in complaint


async def test_a_command_ends_with_whoever_runs_it(server: Server) -> None:
    await server.store.end_jobs(1)
    script = "import os, signal; print(os.getpid(), 'runs', flush=True); signal.pause()"
    doing = ("--consumer", "c", "--from", "earliest", "--exec", command(script))
    async with running(server.server.port, "reports", *doing, on_terminal=False) as reading:
        assert reading.process.stdout is not None
        pid = int((await reading.process.stdout.readuntil(b" runs\n")).split()[0])
        reading.process.send_signal(signal.SIGTERM)
        status, _, _ = await reading.end()
    assert status == -signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert await position(server) == 0
