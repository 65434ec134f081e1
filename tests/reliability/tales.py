"""What happens to a job, as the operations that its services submit, one after the other.

A tale is a generator: it yields what it asks of the writer and goes on when that is acknowledged.
Tales of several jobs are told at the same time, so that commits mix them.
"""

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

import msgspec

from app.domain.feed import Selection
from app.domain.job import JobState, NewJob, StopReason, Usage
from app.domain.transitions import finished
from app.storage.compaction import compact
from app.storage.consumers import ack_consumer, insert_consumer
from app.storage.endings import GiveBack
from app.storage.frames import FrameOperation, NewChunk
from app.storage.jobs import (
    claim_jobs,
    end_waiting_job,
    insert_job,
    insert_jobs,
    make_due,
    request_stop,
)
from app.storage.operations import Operation
from app.storage.retention import Expired, delete_expired
from shared.ids import CommandId, GenerationId
from shared.messages import Text
from tests.integration.storage.making import NOW, job_id, make_claim, make_ending, make_job
from tests.reliability.ledger import Ledger, token

PROMPT = Usage(prompt_tokens=7, cached_tokens=2)
LATER = NOW + timedelta(seconds=1)
LONG_AFTER = NOW + timedelta(days=100)

Told: TypeAlias = Callable[[Ledger], None]


def _nothing(_ledger: Ledger) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Ask:
    """An operation, or a part of the worker's next frame; and what holds once it is acknowledged.
    ``asked`` is what may hold from when it was submitted."""

    what: "Operation | Callable[[FrameOperation], None]"
    told: Told = _nothing
    asked: Told = _nothing


Tale: TypeAlias = Generator[Ask, None, None]


@dataclass(slots=True)
class Job:
    """A job as its teller has it: what is in the store, once all it asked for is acknowledged."""

    number: int
    state: JobState = JobState.AVAILABLE
    attempt: int = 0
    started: bool = False
    events: int = 1
    tokens: int = 0
    stop: StopReason | None = None
    rows: list[NewChunk] | None = field(default_factory=list[NewChunk])
    """Its journal; None when an earlier life has written to it."""
    next_row: int = 0

    @property
    def new(self) -> NewJob:
        return make_job(self.number)

    @property
    def usage(self) -> Usage:
        prompt = PROMPT if self.started else Usage()
        return msgspec.structs.replace(prompt, completion_tokens=self.tokens)


def tale_of(job: Job, generation: GenerationId, chance: random.Random) -> Tale:
    """A new job from its submission to its end, or beyond it."""
    kind = chance.choice(("waits", "waits", "runs", "runs", "scheduled", "bulk"))
    if kind == "runs":
        job.state, job.attempt = JobState.RUNNING, 1
        claim = make_claim(job.number, 1, generation)
        yield Ask(insert_job(job.new, claim, _command(job, 1)), _inserted(job.number, 1))
    elif kind == "scheduled":
        later = msgspec.structs.replace(job.new, scheduled_at=LATER)
        job.state = JobState.SCHEDULED
        yield Ask(insert_job(later), _inserted(job.number))
    elif kind == "bulk":
        yield Ask(insert_jobs([job.new]), _inserted(job.number))
    else:
        yield Ask(insert_job(job.new), _inserted(job.number))
        if chance.random() < 0.3:
            yield from _cancelled_while_it_waits(job)
            return
    yield from goes_on(job, generation, chance)


def goes_on(job: Job, generation: GenerationId, chance: random.Random) -> Tale:
    """A job that is there already, to its end, or beyond it."""
    if job.state is JobState.SCHEDULED:
        yield Ask(make_due(job_id(job.number), LATER))
    while True:
        if job.state is not JobState.RUNNING:
            yield from _claimed(job, generation)
        yield from _runs(job, chance)
        if job.stop is None and chance.random() < 0.2:
            yield from _given_back(job)
            continue
        break
    if job.stop is None and chance.random() < 0.25:
        yield from _asked_to_stop(job, generation)
    yield from _ends(job)
    if job.rows is not None and chance.random() < 0.5:
        yield from _joined(job)
    if chance.random() < 0.2:
        yield from _deleted(job)


def consumes(ledger: Ledger, last: int, *, known: bool) -> Tale:
    """The one consumer acknowledges all that was in the feed at the start."""
    if not known:
        yield Ask(insert_consumer("reader", Selection(), "earliest", NOW))

    def acked(told: Ledger) -> None:
        told.acked = max(told.acked, last)

    if last > ledger.acked:
        yield Ask(ack_consumer("reader", last, NOW), acked)


def _claimed(job: Job, generation: GenerationId) -> Tale:
    job.attempt += 1
    job.state = JobState.RUNNING
    operation = claim_jobs(
        [(make_claim(job.number, job.attempt, generation), _command(job, job.attempt))]
    )
    yield Ask(operation, _inserted(job.number, job.attempt))


def _runs(job: Job, chance: random.Random) -> Tale:
    attempt, first = job.attempt, not job.started

    def accepted(frame: FrameOperation) -> None:
        frame.accepted(
            job_id(job.number),
            attempt,
            now=NOW,
            prompt_tokens=PROMPT.prompt_tokens,
            cached_tokens=PROMPT.cached_tokens,
            digest="digest",
            fingerprint="print",
        )

    yield Ask(accepted)
    job.started = True
    job.events += first
    for _ in range(chance.randint(1, 4)):
        yield from _says(job, chance.randint(1, 5))


def _says(job: Job, count: int) -> Tale:
    chunk = NewChunk(
        job=job_id(job.number),
        number=job.next_row,
        first_event=job.events,
        last_event=job.events,
        attempt=job.attempt,
        choice=0,
        first_token=job.tokens,
        token_count=count,
        tokens=msgspec.msgpack.encode(
            [token(job.number, job.tokens + position) for position in range(count)]
        ),
        parts=msgspec.msgpack.encode([Text(f"word {job.tokens} ")]),
    )
    job.next_row += 1
    job.events += 1
    job.tokens += count
    if job.rows is not None:
        job.rows.append(chunk)
    tokens = job.tokens

    def said(frame: FrameOperation) -> None:
        frame.tokens(chunk.job, chunk.attempt, 0, count)
        frame.journal(chunk)

    def told(ledger: Ledger) -> None:
        ledger.of(job.number).tokens = tokens

    yield Ask(said, told)


def _given_back(job: Job) -> Tale:
    back = GiveBack(
        job=job_id(job.number), attempt=job.attempt, outcome="preempted", now=NOW, due_at=NOW
    )
    job.state = JobState.AVAILABLE
    yield Ask(lambda frame: frame.gave_back(back))


def _asked_to_stop(job: Job, generation: GenerationId) -> Tale:
    job.stop = StopReason.CANCEL
    operation = request_stop(
        job_id(job.number),
        StopReason.CANCEL,
        NOW,
        command=CommandId(_command(job, job.attempt) + 5),
        generation=generation,
        attempt=job.attempt,
    )

    def told(ledger: Ledger) -> None:
        ledger.of(job.number).stopping = True

    yield Ask(operation, told)


def _ends(job: Job) -> Tale:
    """With what it had to say, whether it was asked to stop or not: a finish wins."""
    state, failure = finished(job.stop)
    ending = make_ending(
        job.number, attempt=job.attempt, state=state, failure=failure, usage=job.usage
    )
    job.state = state
    stop = job.stop
    yield Ask(
        lambda frame: frame.ended(job.new, ending, stop_reason=stop),
        _ended(job.number, state),
    )


def _cancelled_while_it_waits(job: Job) -> Tale:
    ending = make_ending(
        job.number,
        attempt=job.attempt,
        state=JobState.CANCELLED,
        finish_reason=None,
        usage=job.usage,
    )
    operation = end_waiting_job(job.new, ending, job.state)
    job.state = JobState.CANCELLED
    yield Ask(operation, _ended(job.number, JobState.CANCELLED))


def _joined(job: Job) -> Tale:
    operation = compact(job.rows or [])
    if operation is not None:
        yield Ask(operation)


def _deleted(job: Job) -> Tale:
    expired = Expired(jobs=(job_id(job.number),), keys=0, now=LONG_AFTER, keep_s=0)

    def leaving(ledger: Ledger) -> None:
        ledger.of(job.number).leaving = True

    def gone(ledger: Ledger) -> None:
        ledger.of(job.number).gone = True

    yield Ask(delete_expired(expired), gone, leaving)


def _inserted(number: int, attempt: int = 0) -> Told:
    def told(ledger: Ledger) -> None:
        promise = ledger.of(number)
        promise.inserted, promise.attempts = True, max(promise.attempts, attempt)

    return told


def _ended(number: int, state: JobState) -> Told:
    def told(ledger: Ledger) -> None:
        ledger.of(number).ended = state

    return told


def _command(job: Job, attempt: int) -> CommandId:
    return CommandId(job.number * 1_000 + attempt * 10)
