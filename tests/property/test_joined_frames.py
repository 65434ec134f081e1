"""Frames that are written as one come to what they come to one by one."""

import asyncio
import re
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.job import JobState, NewJob, Usage
from app.storage.database import DATABASE_NAME
from app.storage.endings import GiveBack
from app.storage.frames import FrameOperation, NewChunk
from app.storage.operations import Committed
from tests.integration.storage.making import (
    GENERATION,
    NOW,
    job_id,
    make_ending,
    opened,
    start_generation,
    start_job,
)

JOBS = 3
Event = Callable[[FrameOperation], None]


@dataclass
class Told:
    """What a worker says of the n-th job, in an order in which it may."""

    number: int
    accepted: bool = False
    over: bool = False
    tokens: int = 0
    chunks: int = 0
    events: int = 1

    def accept(self) -> Event:
        self.accepted = True
        self.events += 1

        def event(frame: FrameOperation) -> None:
            frame.accepted(
                job_id(self.number),
                1,
                now=NOW + timedelta(seconds=1),
                prompt_tokens=7,
                cached_tokens=2,
                digest="digest",
                fingerprint="print",
            )

        return event

    def progress(self, done: int) -> Event:
        return lambda frame: frame.progressed(job_id(self.number), 1, done)

    def token(self, choice: int, *, shown: bool) -> Event:
        first, count = self.events, int(shown)
        chunk = NewChunk(
            job=job_id(self.number),
            number=self.chunks,
            first_event=first,
            last_event=first + count - 1,
            attempt=1,
            choice=choice,
            first_token=self.tokens,
            token_count=1,
            tokens=b"\x01",
        )
        self.events += count
        self.tokens += 1
        self.chunks += 1

        def event(frame: FrameOperation) -> None:
            frame.tokens(job_id(self.number), 1, choice, 1)
            frame.journal(chunk)

        return event

    def end(self, *, followed: bool) -> Event:
        self.over = True
        usage = Usage(prompt_tokens=7, cached_tokens=2, completion_tokens=self.tokens)
        ending = make_ending(self.number, usage=usage, state=JobState.COMPLETED)

        def event(frame: FrameOperation) -> None:
            frame.ended(NEW[self.number], ending, stop_reason=None, followed=followed)

        return event

    def give_back(self) -> Event:
        self.over = True
        back = GiveBack(
            job=job_id(self.number), attempt=1, outcome="preempted", now=NOW, due_at=NOW
        )
        return lambda frame: frame.gave_back(back)


NEW: dict[int, NewJob] = {}


@st.composite
def told(draw: st.DrawFn) -> list[list[Event]]:
    """Frames: each a list of events, of several jobs in turn."""
    jobs = [Told(number) for number in range(1, JOBS + 1)]
    frames: list[list[Event]] = []
    for _ in range(draw(st.integers(1, 6))):
        frame: list[Event] = []
        turns = [job for job in jobs for _ in range(draw(st.integers(0, 3)))]
        frame += [draw(one_event(job)) for job in turns if not job.over]
        frames.append(frame)
    return frames


@st.composite
def one_event(draw: st.DrawFn, job: Told) -> Event:
    """The next thing that may be said of a job."""
    if not job.accepted:
        return job.give_back() if draw(st.integers(0, 9)) == 0 else job.accept()
    match draw(st.sampled_from(["progress", "token", "token", "token", "end", "back"])):
        case "progress":
            return job.progress(draw(st.integers(1, 512)))
        case "token":
            return job.token(draw(st.integers(0, 1)), shown=draw(st.booleans()))
        case "end":
            return job.end(followed=draw(st.booleans()))
        case _:
            return job.give_back()


async def come_to(frames: Sequence[Sequence[Event]], *, joined: bool) -> list[str]:
    """Everything that the store holds after these frames."""
    with tempfile.TemporaryDirectory() as place:
        async with opened(Path(place)) as database:
            await start_generation(database)
            for number in range(1, JOBS + 1):
                NEW[number] = await start_job(database, number)
            operation = FrameOperation(GENERATION, 1)
            for seq, frame in enumerate(frames, 1):
                if seq > 1 and joined:
                    operation.join(seq)
                elif seq > 1:
                    assert await database.writer.submit(operation) == Committed()
                    operation = FrameOperation(GENERATION, seq)
                for event in frame:
                    event(operation)
            assert await database.writer.submit(operation) == Committed()
        with closing(sqlite3.connect(Path(place) / DATABASE_NAME)) as store:
            return [_sorted(line) for line in store.iterdump() if '"meta"' not in line]


def _sorted(line: str) -> str:
    """Choices in the order of their numbers: in what order they spoke first means nothing."""
    return re.sub(r'\{("\d+":\d+,?)+\}', lambda found: str(sorted(found[0][1:-1].split(","))), line)


@settings(max_examples=40, deadline=None)
@given(told())
def test_frames_written_as_one_come_to_what_they_come_to_one_by_one(
    frames: list[list[Event]],
) -> None:
    apart = asyncio.run(come_to(frames, joined=False))
    assert asyncio.run(come_to(frames, joined=True)) == apart
