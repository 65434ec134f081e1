"""What was acknowledged is there after a kill, whenever it comes."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.storage.making import REPOSITORY, query

WRITE = """
import asyncio, sys
from pathlib import Path
from app.domain.job import JobState
from app.storage.database import Database
from app.storage.jobs import end_waiting_job, insert_job
from tests.integration.storage.making import make_ending, make_job

async def one(writer, number):
    await writer.submit(insert_job(make_job(number)))
    print("i", number, flush=True)
    ending = make_ending(number, attempt=0, state=JobState.CANCELLED, finish_reason=None)
    await writer.submit(end_waiting_job(make_job(number), ending, JobState.AVAILABLE))
    print("e", number, flush=True)

async def main():
    database = await Database.open(Path(sys.argv[1]))
    for first in range(int(sys.argv[2]), 10**9, 16):
        await asyncio.gather(*(one(database.writer, first + n) for n in range(16)))

asyncio.run(main())
"""


@pytest.mark.timeout(120)
def test_a_kill_in_the_middle_of_commits_loses_nothing_acknowledged(data_dir: Path) -> None:
    inserted: set[int] = set()
    ended: set[int] = set()
    dice = random.Random(7)
    for round_ in range(3):
        lines = run_and_kill(data_dir, first=round_ * 1_000_000, after=dice.randrange(20, 900))
        inserted |= {number for kind, number in lines if kind == "i"}
        ended |= {number for kind, number in lines if kind == "e"}
        check(data_dir, inserted, ended)
    assert len(ended) > 100


def run_and_kill(data_dir: Path, first: int, after: int) -> list[tuple[str, int]]:
    """Kill the writing process once it has acknowledged so much; all that it acknowledged."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITE, str(data_dir), str(first)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(after)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    return [(line[0], int(line[2:])) for line in lines if line.endswith("\n")]


def check(data_dir: Path, inserted: set[int], ended: set[int]) -> None:
    """Everything acknowledged is there; every ending has its one report; the feed has no gap."""
    assert query(data_dir, "PRAGMA integrity_check") == [("ok",)]
    rows = query(data_dir, "SELECT id, state FROM job")
    states = {int(job.removeprefix("job_"), 16): state for job, state in rows}
    assert inserted <= states.keys()
    cancelled = {number for number, state in states.items() if state == "cancelled"}
    assert ended <= cancelled
    reports = query(data_dir, "SELECT subject, seq FROM report ORDER BY seq")
    assert [seq for _, seq in reports] == list(range(1, len(reports) + 1))
    assert {int(subject.removeprefix("job_"), 16) for subject, _ in reports} == cancelled
    assert len(reports) == len(cancelled)
