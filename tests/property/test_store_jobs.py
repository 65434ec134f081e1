"""Whatever is tried on jobs, in whatever order and in whatever company of one commit, the store
agrees with a model of the rules: a job ends once, an old attempt wins nothing, every ending has its
one report, the feed has no gap."""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from typing_extensions import override

from app.domain.job import FINAL_STATES, JobState, StopReason
from app.domain.transitions import finished
from app.storage.database import Database
from app.storage.endings import GiveBack
from app.storage.frames import FrameOperation
from app.storage.jobs import (
    claim_jobs,
    end_waiting_job,
    give_back,
    insert_job,
    make_due,
    request_stop,
)
from app.storage.limits import WriterLimits
from app.storage.operations import Committed, Operation
from shared.ids import CommandId
from tests.integration.storage.making import (
    GENERATION,
    NOW,
    job_id,
    make_claim,
    make_ending,
    make_job,
    query,
    start_generation,
)

JOBS = st.integers(0, 2)
"""Which job: 0 is the newest."""
OFFSETS = st.sampled_from([0, 0, 0, 0, -1, 1])
"""How far an attempt number is off."""
WAITING = [JobState.SCHEDULED, JobState.AVAILABLE, JobState.RETRYABLE]
OTHER: dict[StopReason | None, StopReason | None] = {
    None: StopReason.CANCEL,
    StopReason.CANCEL: None,
    StopReason.DEADLINE: StopReason.PARENT_LOST,
    StopReason.PARENT_LOST: StopReason.DEADLINE,
}
MAX_ATTEMPTS = make_job().max_attempts


@dataclass
class Model:
    """A job as the rules have it."""

    state: JobState = JobState.AVAILABLE
    attempt: int = 0
    stop: StopReason | None = None
    delivered: int = 0
    failures: int = 0
    endings: int = 0


class StoreMachine(RuleBasedStateMachine):
    """Operations gather and are handed over a few at a time, so that commits mix them."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = Path(tempfile.mkdtemp())
        self.jobs: dict[int, Model] = {}
        self.commands = 0
        self.seq = 0
        self.gathered: list[tuple[Operation, bool]] = []

    @initialize()
    def open(self) -> None:
        self.database = self.loop.run_until_complete(self._open())

    async def _open(self) -> Database:
        database = await Database.open(
            self.directory, limits=WriterLimits(lazy_wait_s=0.001), now=lambda: NOW
        )
        await start_generation(database)
        return database

    @override
    def teardown(self) -> None:
        self.flush()
        self.loop.run_until_complete(self.database.close())
        self.loop.close()
        shutil.rmtree(self.directory)

    def gather(self, operation: Operation, *, holds: bool) -> None:
        """Operations are expected to be committed in the order they gather."""
        self.gathered.append((operation, holds))

    def command(self) -> CommandId:
        self.commands += 1
        return CommandId(self.commands)

    @rule(later=st.booleans())
    def submit(self, later: bool) -> None:
        number = len(self.jobs) + 1
        changes: dict[str, Any] = {"scheduled_at": NOW + timedelta(hours=1)} if later else {}
        state = JobState.SCHEDULED if later else JobState.AVAILABLE
        self.jobs[number] = Model(state)
        self.gather(insert_job(make_job(number, **changes)), holds=True)

    @rule()
    def submit_running(self) -> None:
        number = len(self.jobs) + 1
        self.jobs[number] = Model(JobState.RUNNING, 1)
        operation = insert_job(make_job(number), make_claim(number), self.command())
        self.gather(operation, holds=True)

    def pick(self, back: int) -> tuple[int, Model]:
        """One of the newest jobs, or one that was never submitted."""
        number = max(len(self.jobs) - back, 0)
        return number, self.jobs.get(number) or Model(JobState.COMPLETED)

    @rule(back=JOBS, off=OFFSETS)
    def claim(self, back: int, off: int) -> None:
        number, model = self.pick(back)
        attempt = max(model.attempt + 1 + off, 1)
        right = attempt == model.attempt + 1 and model.stop is None
        holds = right and model.state is JobState.AVAILABLE
        self.gather(claim_jobs([(make_claim(number, attempt), self.command())]), holds=holds)
        if holds:
            model.state, model.attempt = JobState.RUNNING, attempt

    @rule(back=JOBS)
    def due(self, back: int) -> None:
        number, model = self.pick(back)
        holds = model.state in (JobState.SCHEDULED, JobState.RETRYABLE)
        self.gather(make_due(job_id(number), NOW), holds=holds)
        if holds:
            model.state = JobState.AVAILABLE

    @rule(back=JOBS, reason=st.sampled_from(StopReason))
    def stop(self, back: int, reason: StopReason) -> None:
        number, model = self.pick(back)
        holds = model.state not in FINAL_STATES and model.stop is None
        self.gather(request_stop(job_id(number), reason, NOW), holds=holds)
        if holds:
            model.stop = reason

    @rule(back=JOBS, off=OFFSETS, count=st.integers(1, 9), ahead=st.sampled_from([1, 1, 0, 2]))
    def tokens(self, back: int, off: int, count: int, ahead: int) -> None:
        number, model = self.pick(back)
        frame = FrameOperation(GENERATION, self.seq + ahead)
        frame.tokens(job_id(number), model.attempt + off, 0, count)
        holds = model.state is JobState.RUNNING and off == 0 and ahead == 1
        self.gather(frame.build(), holds=holds)
        if holds:
            self.seq += 1
            model.delivered += count

    @rule(back=JOBS, off=OFFSETS, surprised=st.sampled_from([False, False, True]))
    def finish(self, back: int, off: int, surprised: bool) -> None:
        number, model = self.pick(back)
        believed = OTHER[model.stop] if surprised else model.stop
        state, failure = finished(believed)
        ending = make_ending(
            number,
            attempt=model.attempt + off,
            state=state,
            failure=failure,
            finish_reason="stop" if failure is None else None,
        )
        frame = FrameOperation(GENERATION, self.seq + 1)
        frame.ended(make_job(number), ending, stop_reason=believed)
        holds = model.state is JobState.RUNNING and off == 0 and not surprised
        self.gather(frame.build(), holds=holds)
        if holds:
            self.seq += 1
            model.state = state
            model.endings += 1

    @rule(back=JOBS, off=OFFSETS, failed=st.booleans())
    def give_back(self, back: int, off: int, failed: bool) -> None:
        number, model = self.pick(back)
        given = GiveBack(
            job=job_id(number),
            attempt=model.attempt + off,
            outcome="failed" if failed else "lost",
            now=NOW,
            due_at=NOW,
        )
        holds = model.state is JobState.RUNNING and off == 0 and model.stop is None
        if failed and holds:
            model.failures += 1
            if model.failures > MAX_ATTEMPTS:
                return
        self.gather(give_back(given), holds=holds)
        if holds:
            model.state = JobState.RETRYABLE if failed else JobState.AVAILABLE

    @rule(back=JOBS, off=OFFSETS, expected=st.sampled_from(WAITING))
    def end_waiting(self, back: int, off: int, expected: JobState) -> None:
        number, model = self.pick(back)
        ending = make_ending(
            number, attempt=model.attempt + off, state=JobState.CANCELLED, finish_reason=None
        )
        holds = model.state is expected and off == 0
        self.gather(end_waiting_job(make_job(number), ending, expected), holds=holds)
        if holds:
            model.state = JobState.CANCELLED
            model.endings += 1

    @rule()
    def flush(self) -> None:
        """Hand over all that gathered, as one list."""
        gathered, self.gathered = self.gathered, []
        outcomes = self.loop.run_until_complete(self._submit([op for op, _ in gathered]))
        for (operation, holds), outcome in zip(gathered, outcomes, strict=True):
            assert (outcome == Committed()) is holds, (operation, outcome)

    async def _submit(self, operations: list[Operation]) -> list[Any]:
        return await asyncio.gather(*self.database.writer.submit_many(operations))

    @invariant()
    def the_store_agrees_with_the_model(self) -> None:
        if self.gathered or not hasattr(self, "database"):
            return
        rows = query(self.directory, "SELECT id, state, attempt, stop_reason FROM job")
        assert {row[0]: row[1:] for row in rows} == {
            job_id(number): (model.state, model.attempt, model.stop)
            for number, model in self.jobs.items()
        }
        reports = query(self.directory, "SELECT subject, seq FROM report ORDER BY seq")
        assert [seq for _, seq in reports] == list(range(1, len(reports) + 1))
        ended = [job_id(number) for number, model in self.jobs.items() if model.endings]
        assert sorted(subject for subject, _ in reports) == sorted(ended)
        assert all(model.endings <= 1 for model in self.jobs.values())
        counts = query(self.directory, "SELECT job, sum(delivered_tokens) FROM attempt GROUP BY 1")
        for job, delivered in counts:
            assert delivered == self.jobs[int(job.removeprefix("job_"), 16)].delivered


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=20,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
