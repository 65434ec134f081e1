"""Where a follower of a job reads its events from."""

import asyncio
from typing import cast

import pytest

from app.domain.events import FollowedEvent, Output, Started
from app.domain.job import Usage
from app.services import following
from app.services.following import JournalFollower
from app.storage.frames import NewChunk
from app.storage.journal import JournalPage
from app.storage.readers import Readers
from app.storage.rows import JobRow
from app.streams.broadcast import EVENTS_KEPT, Channel
from shared.ids import JobId
from shared.messages import Text
from tests.integration.storage.making import NOW, job_id, make_job

JOB = job_id(1)


class Job:
    """A job that runs: its channel, and a store in which everything is that was shown."""

    def __init__(self) -> None:
        self.channel = Channel(bounded=True)
        self.shown: list[FollowedEvent] = []
        self.reads = 0

    def says(self, count: int = 1) -> None:
        for _ in range(count):
            seq = len(self.shown) + 1
            event = Started(1, 3, 0) if seq == 1 else Output(seq, 0, (Text(f"{seq}"),), 1)
            self.shown.append(event)
            self.channel.publish(event)

    async def page(
        self, _readers: Readers, _job: JobId, from_event: int, _from_number: int
    ) -> JournalPage:
        """What is stored from there on; and while it is read, the job goes on."""
        self.reads += 1
        stored = [event for event in self.shown if event.seq >= max(2, from_event)]
        self.says(int(bool(self.shown)))
        return JournalPage(
            job=cast("JobRow", Running(len(self.shown))),
            chunks=[chunk(cast("Output", event)) for event in stored],
            last=False,
        )


class Running:
    """What a follower asks of a job's row."""

    def __init__(self, events: int) -> None:
        self.new = make_job(1)
        self.started_at = NOW if events else None
        self.usage = Usage(prompt_tokens=3)
        self.events = events


def chunk(output: Output) -> NewChunk:
    return NewChunk(
        job=JOB,
        number=output.seq,
        first_event=output.seq,
        last_event=output.seq,
        attempt=1,
        choice=0,
        first_token=output.seq,
        token_count=1,
        tokens=b"\x01",
    )


def output(stored: NewChunk) -> Output:
    return Output(stored.first_event, stored.choice, (Text(""),), 1)


@pytest.mark.parametrize("starting_after", [-1, 0, 1, 5])
@pytest.mark.parametrize("before", [0, 3, 3 * EVENTS_KEPT])
async def test_a_follower_that_has_caught_up_reads_the_store_no_more(
    monkeypatch: pytest.MonkeyPatch, starting_after: int, before: int
) -> None:
    job = Job()
    monkeypatch.setattr(following, "load_page", job.page)
    monkeypatch.setattr(following, "_output", output)
    job.says(before)
    follower = JournalFollower(
        cast("Readers", None), JOB, job.channel, starting_after + 1, lambda _: None
    )
    seen: list[int] = []
    for _ in range(50):
        taking = asyncio.ensure_future(follower.take(5.0))
        await asyncio.sleep(0)  # it waits, unless there is something already
        job.says()
        seen += [event.seq for event in await taking]
    assert seen == list(range(max(1, starting_after + 1), seen[-1] + 1))
    assert job.reads <= 2
