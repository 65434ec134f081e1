"""What has happened in the store that the checks are tried on.

Jobs 1 to 3 ran on the first worker, which was lost and is gone: 1 went on elsewhere and completed,
2 is running on the second, 3 failed once and is to be tried again. 4 was attached and completed.
5 was cancelled while it waited, 6 is scheduled, 7 goes at its own time and has a key, 8 waits.
One drain has ended, one runs.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from app.domain.job import Durability, JobState, NewJob, StopReason, Usage
from app.domain.receipts import Rank
from app.domain.view import DrainView
from app.storage.database import Database
from app.storage.drains import end_drain, insert_drain
from app.storage.endings import GiveBack
from app.storage.frames import FrameOperation, NewChunk
from app.storage.generations import generation_gone, lose_generation
from app.storage.idempotency import NewIdempotency
from app.storage.jobs import claim_jobs, end_waiting_job, insert_job, request_stop
from app.storage.operations import Committed, NewReceipt, Operation
from shared.failures import Failure
from shared.ids import CommandId, GenerationId
from shared.messages import CloseItem, Finish, OpenItem, Part, Text
from shared.totals import GenerationTotals
from tests.integration.storage.making import (
    NOW,
    job_id,
    make_claim,
    make_ending,
    make_job,
    opened,
    start_generation,
)

FIRST = GenerationId(f"gen_{1:032x}")
SECOND = GenerationId(f"gen_{2:032x}")
LATER = NOW + timedelta(seconds=5)
PROMPT = 7
OPEN = (OpenItem(0, "message"), Text("once"))
CLOSE: tuple[Part, ...] = (Text(" more"), CloseItem(0), Finish("stop"))

JOBS: dict[int, NewJob] = {
    1: make_job(1),
    2: make_job(2),
    3: make_job(3),
    4: make_job(4, durability=Durability.ATTACHED, request=None),
    5: make_job(5),
    6: make_job(6, scheduled_at=NOW + timedelta(hours=1)),
    7: make_job(7, durability=Durability.STORED, keep_s=600.0),
    8: make_job(8, tags={"team": "a"}),
}


class Frames:
    """The frames of one worker, one after the other."""

    def __init__(self, generation: GenerationId) -> None:
        self.generation = generation
        self.seq = 0

    def next(self) -> FrameOperation:
        """The next one."""
        self.seq += 1
        return FrameOperation(self.generation, self.seq)


def accept(frame: FrameOperation, number: int, attempt: int = 1) -> None:
    """The worker has the n-th job."""
    frame.accepted(
        job_id(number),
        attempt,
        now=NOW,
        prompt_tokens=PROMPT,
        cached_tokens=2,
        digest="digest",
        fingerprint="print",
    )


def speak(
    frame: FrameOperation,
    number: int,
    row: int,
    event: int,
    parts: tuple[Part, ...],
    **overrides: Any,
) -> None:
    """A row of the n-th job's journal: two tokens, so many events."""
    shown = sum(not isinstance(part, Finish) for part in parts)
    chunk = NewChunk(
        job=job_id(number),
        number=row,
        first_event=event,
        last_event=event + shown - 1,
        attempt=1,
        choice=0,
        first_token=row * 2,
        token_count=2,
        tokens=msgspec.msgpack.encode((1, 2)),
        logprobs=msgspec.msgpack.encode((-0.5, -0.25)),
        parts=msgspec.msgpack.encode(parts),
    )
    chunk = msgspec.structs.replace(chunk, **overrides)
    frame.tokens(chunk.job, chunk.attempt, chunk.choice, chunk.token_count)
    frame.journal(chunk)


def completed(number: int, attempt: int, tokens: int) -> Any:
    """The n-th job's ending."""
    usage = Usage(prompt_tokens=PROMPT, cached_tokens=2, completion_tokens=tokens)
    return make_ending(number, attempt=attempt, usage=usage)


def claim(number: int, attempt: int, generation: GenerationId) -> Operation:
    """The n-th job goes to a worker."""
    command = CommandId(number * 10 + attempt)
    return claim_jobs([(make_claim(number, attempt, generation), command)])


async def write(database: Database, *operations: Operation) -> None:
    """One after the other, all of which must hold."""
    for operation in operations:
        assert await database.writer.submit(operation) == Committed(), operation


async def make_history(directory: Path) -> None:
    """All of it."""
    async with opened(directory) as database:
        await write(database, *map(insert_job, (JOBS[n] for n in (1, 2, 3, 4, 5, 6, 8))))
        await on_the_first_worker(database)
        await on_the_second_worker(database)
        await without_a_worker(database)
        await drains(database)


async def on_the_first_worker(database: Database) -> None:
    await start_generation(database, FIRST)
    await write(database, *(claim(number, 1, FIRST) for number in (1, 2, 3, 4)))
    frames = Frames(FIRST)
    one, two, three = frames.next(), frames.next(), frames.next()
    for number in (1, 2, 3, 4):
        accept(one, number)
    speak(two, 1, 0, 2, OPEN)
    speak(two, 1, 1, 4, ())
    speak(two, 2, 0, 2, OPEN)
    two.tokens(job_id(4), 1, 0, 3)
    failed = GiveBack(
        job=job_id(3),
        attempt=1,
        outcome="failed",
        now=NOW,
        due_at=LATER,
        failure=Failure(code="engine_error", message="x", retryable=True),
    )
    three.gave_back(failed)
    three.tokens(job_id(4), 1, 1, 1)
    three.ended(JOBS[4], completed(4, 1, 4), stop_reason=None)
    await write(database, one.build(), two.build(), three.build())
    lost = [
        GiveBack(job=job_id(number), attempt=1, outcome="lost", now=LATER, due_at=LATER)
        for number in (1, 2)
    ]
    crash = NewReceipt(generation=FIRST, asked=Rank.CRASH, now=LATER, detail="died")
    own = GenerationTotals(4, 4 * PROMPT, 8, 10)
    sealed = NewReceipt(generation=FIRST, asked=Rank.SEALED, now=LATER, own=own)
    await write(
        database,
        lose_generation(FIRST, LATER, "died", given_back=lost, receipt=crash),
        generation_gone(FIRST, LATER, None, 9, "killed", receipt=sealed),
    )


async def on_the_second_worker(database: Database) -> None:
    await start_generation(database, SECOND)
    key = NewIdempotency(
        tenant="default",
        method="POST",
        path="/v1/jobs",
        key="k",
        digest="d",
        job=job_id(7),
        created_at=NOW,
        expires_at=NOW + timedelta(days=1),
    )
    await write(
        database,
        insert_job(JOBS[7], make_claim(7, 1, SECOND), CommandId(71), idempotency=key),
        claim(1, 2, SECOND),
        claim(2, 2, SECOND),
    )
    frames = Frames(SECOND)
    one, two = frames.next(), frames.next()
    accept(one, 1, attempt=2)
    accept(one, 7)
    speak(two, 1, 2, 4, CLOSE, attempt=2)
    two.ended(JOBS[1], completed(1, 2, 6), stop_reason=None)
    speak(two, 7, 0, 2, (*OPEN, *CLOSE))
    two.ended(JOBS[7], completed(7, 1, 2), stop_reason=None)
    await write(database, one.build(), two.build())
    stop = request_stop(
        job_id(2),
        StopReason.CANCEL,
        NOW,
        command=CommandId(99),
        generation=SECOND,
        attempt=2,
    )
    await write(database, stop)


async def without_a_worker(database: Database) -> None:
    ending = make_ending(5, attempt=0, state=JobState.CANCELLED, finish_reason=None, usage=Usage())
    await write(database, end_waiting_job(JOBS[5], ending, JobState.AVAILABLE))


async def drains(database: Database) -> None:
    running = DrainView(
        id=f"drain_{1:032x}",
        mode="finish",
        scope="server",
        state="running",
        started_at=NOW,
        ended_at=None,
        timeout_s=1.0,
        in_flight=2,
        finished=0,
        given_back=0,
        cancelled=0,
    )
    ended = msgspec.structs.replace(running, state="completed", ended_at=LATER, finished=2)
    second = msgspec.structs.replace(running, id=f"drain_{2:032x}")
    await write(database, insert_drain(running), end_drain(ended), insert_drain(second))
