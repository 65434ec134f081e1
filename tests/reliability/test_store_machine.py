"""Whatever is tried on the store, in whatever order and company of one commit, and wherever the
process dies, it agrees with a model of the rules, and ``verify`` finds nothing."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from typing_extensions import override

from app.domain.feed import Selection
from app.domain.job import FINAL_STATES, Durability, Ending, JobState, StopReason, Usage
from app.domain.receipts import Rank
from app.domain.transitions import failed, finished, stopped
from app.services.recall import encode_parts, encode_tokens
from app.storage.commands import preempt_job
from app.storage.compaction import compact
from app.storage.consumers import ack_consumer, insert_consumer
from app.storage.endings import AttemptOutcome, GiveBack
from app.storage.frames import FrameOperation, NewChunk
from app.storage.generations import (
    generation_gone,
    generation_ready,
    insert_generation,
    lose_generation,
)
from app.storage.jobs import (
    claim_jobs,
    end_waiting_job,
    give_back,
    insert_job,
    make_due,
    request_stop,
)
from app.storage.operations import NewReceipt, Operation
from app.storage.reading import load_chunks
from app.storage.report_retention import delete_reports
from app.storage.retention import delete_expired, load_expired
from shared.failures import Failure
from shared.ids import CommandId, GenerationId
from shared.messages import Text
from tests.integration.storage.making import NOW, job_id, make_claim, make_job
from tests.reliability.counts import SHRINK_VARIABLE, NewCampaign
from tests.reliability.store.bench import Bench
from tests.reliability.store.model import MAX_ATTEMPTS, Feed, Job, Worker

STEPS: Final = 50
STRAY: Final = 100
JOBS: Final = st.sampled_from([0, 0, 0, 1, 1, 2, STRAY, STRAY + 1])
"""Which job: of those it makes sense for, 0 is the newest; from ``STRAY`` on of all."""
SELDOM: Final = st.sampled_from([True, *[False] * 5])
OFFSETS: Final = st.sampled_from([0, 0, 0, 0, 0, -1, 1])
AHEAD: Final = st.sampled_from([1, 1, 1, 1, 0, 2])
WAITING: Final = [JobState.SCHEDULED, JobState.AVAILABLE, JobState.RETRYABLE]
BROKE: Final = Failure("scripted_failure", "As ordered.")
PROMPT: Final = 7
LATER: Final = NOW + timedelta(days=40)
KEEP_S: Final = 30 * 86_400.0
CONSUMER: Final = "c"


def generation_id(number: int) -> GenerationId:
    return GenerationId(f"gen_{number:032x}")


def receipt(number: int) -> NewReceipt:
    return NewReceipt(generation=generation_id(number), asked=Rank.CRASH, now=NOW)


class StoreMachine(RuleBasedStateMachine):
    """Operations gather and are committed a few at a time, so that commits mix them."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench("machine")
        self.jobs: dict[int, Job] = {}
        self.workers: dict[int, Worker] = {}
        self.feed = Feed()
        self.commands = 0
        self.gathered: list[tuple[Operation, bool]] = []
        self.dies: str | None = None
        self.start_worker()

    @override
    def teardown(self) -> None:
        self.flush()
        self.bench.close()

    # --- how operations are tried --------------------------------------------------------------

    def tries(
        self, operation: Operation, *, holds: bool, then: Callable[[], object] | None = None
    ) -> None:
        """Try this; ``then`` is what it does to the model if it holds."""
        if self.dies is not None:
            self._dies_over(operation, holds, then)
            return
        self.gathered.append((operation, holds))
        if holds and then is not None:
            then()

    def _dies_over(
        self, operation: Operation, holds: bool, then: Callable[[], object] | None
    ) -> None:
        where, self.dies = self.dies, None
        self.flush()
        self.bench.dies = where
        self.bench.committed(operation)
        self.bench.dies = None
        self.bench.restart()
        if where == "after" and holds and then is not None:
            then()

    @rule()
    def flush(self) -> None:
        gathered, self.gathered = self.gathered, []
        held = self.bench.committed(*(operation for operation, _ in gathered))
        assert held == [holds for _, holds in gathered], (held, gathered)

    def pick(self, back: int, fits: Callable[[Job], bool]) -> tuple[int, Job]:
        """One of the jobs that this fits, or any; or one that was never submitted."""
        found = [number for number, job in self.jobs.items() if back >= STRAY or fits(job)]
        if not found:
            return 0, Job(JobState.COMPLETED, pruned=True)
        number = found[-1 - back % STRAY % len(found)]
        return number, self.jobs[number]

    def worker_of(self, job: Job) -> tuple[int, Worker]:
        number = job.worker or len(self.workers)
        return number, self.workers[number]

    def command(self) -> CommandId:
        self.commands += 1
        return CommandId(self.commands)

    def frame(self, job: Job, ahead: int) -> tuple[FrameOperation, Worker, bool]:
        """The next frame of the job's worker, and whether it is one that counts."""
        number, worker = self.worker_of(job)
        frame = FrameOperation(generation_id(number), worker.seq + ahead)
        return frame, worker, worker.is_heard and ahead == 1

    # --- workers -------------------------------------------------------------------------------

    @rule()
    def start_worker(self) -> None:
        number = len(self.workers) + 1
        generation = generation_id(number)
        self.flush()  # two operations of one subject: a death between them is another rule's
        assert self.bench.committed(
            insert_generation(generation, "tiny", 1, Path("log"), NOW),
            generation_ready(generation, NOW, "print"),
        ) == [True, True]
        self.workers[number] = Worker()

    @rule(back=st.integers(0, 1), forgets=SELDOM, really=SELDOM)
    def lose(self, back: int, forgets: bool, really: bool) -> None:
        if not really:
            self.live_on(2)
            return
        number = max(len(self.workers) - back, 1)
        worker = self.workers[number]
        held = {n: job for n, job in self.jobs.items() if job.running and job.worker == number}
        told = dict(list(held.items())[1:]) if forgets else held
        endings = [
            (make_job(n), self._ending(n, job, job.attempt, *stopped(job.stop)), job.stop)
            for n, job in told.items()
            if job.stop is not None
        ]
        backs = [
            GiveBack(job=job_id(n), attempt=job.attempt, outcome="lost", now=NOW, due_at=NOW)
            for n, job in told.items()
            if job.stop is None
        ]

        def then() -> None:
            worker.state = "lost"
            for n, job in held.items():
                if job.stop is None:
                    job.let_go(JobState.AVAILABLE)
                else:
                    job.end(stopped(job.stop)[0])
                    self.feed.report(job_id(n))
            self.feed.report(generation_id(number))

        self.tries(
            lose_generation(
                generation_id(number), NOW, "as ordered", endings, backs, receipt(number)
            ),
            holds=worker.is_heard and len(told) == len(held),
            then=then,
        )
        # What of its jobs goes back later in the same commit would count as gone back before.
        self.flush()

    @rule(back=st.integers(0, 1), really=st.booleans())
    def gone(self, back: int, really: bool) -> None:
        if not really and not back:
            self.live_on(2)
            return
        lost = [number for number, worker in self.workers.items() if worker.state == "lost"]
        number = lost[-1] if lost and back else len(self.workers)
        worker = self.workers[number]
        busy = any(job.running and job.worker == number for job in self.jobs.values())

        def then() -> None:
            if worker.is_heard:
                self.feed.report(generation_id(number))
            worker.state = "gone"

        self.tries(
            generation_gone(generation_id(number), NOW, 1, None, "as ordered", receipt(number)),
            holds=worker.state != "gone" and not busy,
            then=then,
        )
        self.flush()

    @rule(steps=st.integers(1, 4))
    def live_on(self, steps: int) -> None:
        """The newest job goes its natural way, one step at a time."""
        for _ in range(steps):
            open_jobs = [job for job in self.jobs.values() if job.open and job.stop is None]
            job = open_jobs[-1] if open_jobs else None
            if not self.workers[len(self.workers)].takes_jobs:
                self.start_worker()
            elif job is None:
                self.submit(later=False, stored=False, at_once=False)
            elif not job.running:
                self.due(0) if job.state is not JobState.AVAILABLE else self.claim(0, 0, 0)
            elif not job.accepted:
                self.accept(0, 0, 1)
            else:
                self.fold(0, 0, 1, 2, 1, 0)

    # --- jobs that wait ------------------------------------------------------------------------

    @rule(later=st.booleans(), stored=st.booleans(), at_once=st.booleans())
    def submit(self, later: bool, stored: bool, at_once: bool) -> None:
        number, job = len(self.jobs) + 1, Job()
        changes: dict[str, Any] = {"scheduled_at": NOW + timedelta(hours=1)} if later else {}
        changes["durability"] = Durability.STORED if stored else Durability.DURABLE
        new, at = make_job(number, **changes), len(self.workers)
        job.state = JobState.SCHEDULED if later else JobState.AVAILABLE
        holds = True
        operation = insert_job(new)
        if at_once and not later:
            claim = make_claim(number, 1, generation_id(at))
            operation = insert_job(new, claim, self.command())
            holds = self.workers[at].takes_jobs
            job.claim(1, at)
        self.tries(operation, holds=holds, then=lambda: self.jobs.update({number: job}))

    @rule(back=JOBS)
    def retry(self, back: int) -> None:
        number, job = self.pick(back, _ended)
        if not _ended(job):
            return
        new = len(self.jobs) + 1
        operation = insert_job(make_job(new, retry_of=job_id(number)))
        self.tries(operation, holds=True, then=lambda: self.jobs.update({new: Job()}))

    @rule(back=JOBS, off=OFFSETS, worker=st.integers(0, 1))
    def claim(self, back: int, off: int, worker: int) -> None:
        number, job = self.pick(back, lambda job: job.open and job.state is JobState.AVAILABLE)
        at = max(len(self.workers) - worker, 1)
        attempt = max(job.attempt + 1 + off, 1)
        right = attempt == job.attempt + 1 and job.stop is None and self.workers[at].takes_jobs
        self.tries(
            claim_jobs([(make_claim(number, attempt, generation_id(at)), self.command())]),
            holds=right and job.state is JobState.AVAILABLE and not job.pruned,
            then=lambda: job.claim(attempt, at),
        )

    @rule(back=JOBS)
    def due(self, back: int) -> None:
        number, job = self.pick(
            back, lambda job: job.state in (JobState.SCHEDULED, JobState.RETRYABLE)
        )
        self.tries(
            make_due(job_id(number), NOW),
            holds=job.state in (JobState.SCHEDULED, JobState.RETRYABLE),
            then=lambda: setattr(job, "state", JobState.AVAILABLE),
        )

    @rule(back=JOBS, off=OFFSETS, expected=st.sampled_from(WAITING))
    def end_waiting(self, back: int, off: int, expected: JobState) -> None:
        number, job = self.pick(back, lambda job: job.state is expected)
        ending = self._ending(number, job, job.attempt + off, JobState.CANCELLED, None)

        def then() -> None:
            job.end(JobState.CANCELLED)
            self.feed.report(job_id(number))

        self.tries(
            end_waiting_job(make_job(number), ending, expected),
            holds=job.state is expected and off == 0,
            then=then,
        )

    # --- jobs that run -------------------------------------------------------------------------

    @rule(back=JOBS, reason=st.sampled_from(StopReason))
    def stop(self, back: int, reason: StopReason) -> None:
        number, job = self.pick(back, lambda job: job.open)
        at, _ = self.worker_of(job)
        operation = request_stop(
            job_id(number),
            reason,
            NOW,
            command=self.command(),
            generation=generation_id(at),
            attempt=job.attempt,
        )
        holds = job.open and job.stop is None
        self.tries(operation, holds=holds, then=lambda: setattr(job, "stop", reason))

    @rule(back=JOBS, off=OFFSETS)
    def preempt(self, back: int, off: int) -> None:
        number, job = self.pick(back, lambda job: job.running)
        at, _ = self.worker_of(job)
        self.tries(
            preempt_job(job_id(number), job.attempt + off, generation_id(at), self.command(), NOW),
            holds=job.running and off == 0 and job.stop is None and not job.preempting,
            then=lambda: setattr(job, "preempting", True),
        )

    @rule(back=JOBS, off=OFFSETS, ahead=AHEAD)
    def accept(self, back: int, off: int, ahead: int) -> None:
        number, job = self.pick(back, lambda job: job.running and not job.accepted)
        frame, worker, counts = self.frame(job, ahead)
        frame.accepted(
            job_id(number),
            job.attempt + off,
            now=NOW,
            prompt_tokens=PROMPT,
            cached_tokens=0,
            digest="d",
            fingerprint="print",
            replayed_tokens=job.tokens,
        )

        def then() -> None:
            worker.seq += 1
            job.events += not job.started
            job.accepted = job.started = True

        holds = counts and job.running and off == 0 and not job.accepted
        self.tries(frame.build(), holds=holds, then=then)

    @rule(
        back=JOBS,
        off=OFFSETS,
        ahead=AHEAD,
        tokens=st.integers(1, 4),
        events=st.integers(0, 2),
        skips=st.sampled_from([0, 0, 0, 1]),
    )
    def fold(self, back: int, off: int, ahead: int, tokens: int, events: int, skips: int) -> None:
        number, job = self.pick(back, lambda job: job.running and job.accepted)
        if not job.accepted or job.attempt + off < 1:
            return
        frame, worker, counts = self.frame(job, ahead)
        frame.tokens(job_id(number), job.attempt + off, 0, tokens)
        chunk = self._chunk(number, job, job.attempt + off, tokens, events, skips)
        frame.journal(chunk)

        def then() -> None:
            worker.seq += 1
            job.tokens += tokens
            job.delivered += tokens
            job.chunks += 1
            job.events += events

        right = counts and job.running and off == 0
        self.tries(frame.build(), holds=right and not (skips and events), then=then)

    def _chunk(
        self, number: int, job: Job, attempt: int, tokens: int, events: int, skips: int
    ) -> NewChunk:
        first = job.events + (skips if events else 0)
        return NewChunk(
            job=job_id(number),
            number=job.chunks,
            first_event=first,
            last_event=first + events - 1,
            attempt=attempt,
            choice=0,
            first_token=job.tokens,
            token_count=tokens,
            tokens=encode_tokens(tuple(range(tokens))),
            parts=encode_parts(tuple(Text("word ") for _ in range(events))),
        )

    @rule(
        back=JOBS,
        off=OFFSETS,
        ahead=AHEAD,
        fails=st.booleans(),
        surprised=st.sampled_from([False, False, True]),
    )
    def finish(self, back: int, off: int, ahead: int, fails: bool, surprised: bool) -> None:
        number, job = self.pick(back, lambda job: job.running and job.accepted)
        if not job.accepted:
            return
        believed = _another(job.stop) if surprised else job.stop
        state, failure = failed(BROKE, believed) if fails else finished(believed)
        outcome: AttemptOutcome = "failed" if fails else "finished"
        frame, worker, counts = self.frame(job, ahead)
        ending = self._ending(number, job, job.attempt + off, state, failure)
        frame.ended(make_job(number), ending, stop_reason=believed, outcome=outcome)

        def then() -> None:
            worker.seq += 1
            job.failures = min(job.failures + fails, MAX_ATTEMPTS)
            job.end(state)
            self.feed.report(job_id(number))

        holds = counts and job.running and off == 0 and not surprised
        self.tries(frame.build(), holds=holds, then=then)

    @rule(
        back=JOBS,
        off=OFFSETS,
        outcome=st.sampled_from(["failed", "lost", "preempted", "refused"]),
        in_frame=st.booleans(),
    )
    def give_back(self, back: int, off: int, outcome: AttemptOutcome, in_frame: bool) -> None:
        number, job = self.pick(back, lambda job: job.running)
        failing = outcome == "failed"
        if failing and job.failures + 1 >= MAX_ATTEMPTS:
            return
        given = GiveBack(
            job=job_id(number),
            attempt=job.attempt + off,
            outcome=outcome,
            now=NOW,
            due_at=NOW,
            failure=BROKE if failing else None,
        )
        frame, worker, counts = self.frame(job, 1)
        frame.gave_back(given)
        holds = job.running and off == 0 and job.stop is None and (counts or not in_frame)

        def then() -> None:
            worker.seq += in_frame
            job.failures += failing
            job.let_go(JobState.RETRYABLE if failing else JobState.AVAILABLE)

        self.tries(frame.build() if in_frame else give_back(given), holds=holds, then=then)

    def _ending(
        self, number: int, job: Job, attempt: int, state: JobState, failure: Failure | None
    ) -> Ending:
        return Ending(
            job=job_id(number),
            attempt=attempt,
            state=state,
            finish_reason="stop" if state is JobState.COMPLETED else None,
            failure=failure,
            usage=Usage(prompt_tokens=PROMPT * job.started, completion_tokens=job.tokens),
            finalized_at=NOW + timedelta(seconds=1),
            started_at=NOW if job.started else None,
        )

    # --- what is kept --------------------------------------------------------------------------

    @rule(forget=st.booleans())
    def checkpoint(self, forget: bool) -> None:
        self.flush()
        self.bench.checkpoint(forget=forget)

    @rule(where=st.sampled_from(["before", "after"]))
    def die_over_the_next(self, where: str) -> None:
        self.dies = where

    @rule()
    def restart(self) -> None:
        self.flush()
        self.bench.restart()

    @rule(back=JOBS)
    def compact(self, back: int) -> None:
        number, job = self.pick(back, _ended)
        if not _ended(job):
            return
        self.flush()
        rows = self.bench.read(load_chunks(self.bench.readers, job_id(number)))
        operation = compact(rows)
        if operation is not None:
            self.tries(operation, holds=True)

    @rule(really=SELDOM)
    def prune(self, really: bool) -> None:
        if not really:
            return
        self.flush()
        expired = self.bench.read(load_expired(self.bench.readers, LATER, KEEP_S))
        ended = [job for job in self.jobs.values() if job.state in FINAL_STATES and not job.pruned]
        assert len(expired.jobs) == len(ended)

        def then() -> None:
            for job in ended:
                job.pruned = True

        if expired:
            self.tries(delete_expired(expired), holds=True, then=then)

    @rule()
    def consume(self) -> None:
        self.flush()  # whoever reads, acknowledges or prunes knows only what is committed
        if self.feed.acked is None:
            operation = insert_consumer(CONSUMER, Selection(), "earliest", NOW)
            self.tries(
                operation,
                holds=True,
                then=lambda: setattr(self.feed, "acked", self.feed.pruned),
            )

    @rule(ahead=st.integers(-1, 4), expects=st.sampled_from([None, 0, 0, 1]))
    def ack(self, ahead: int, expects: int | None) -> None:
        self.flush()
        acked = self.feed.acked
        through = max((acked or 0) + ahead, 0)
        expected = None if expects is None else (acked or 0) + expects
        self.tries(
            ack_consumer(CONSUMER, through, NOW, expected),
            holds=acked is not None and through <= self.feed.last and expects in (None, 0),
            then=lambda: setattr(self.feed, "acked", max(acked or 0, through)),
        )

    @rule(ahead=st.integers(0, 4))
    def prune_reports(self, ahead: int) -> None:
        self.flush()
        feed = self.feed
        through = feed.pruned + ahead
        self.tries(
            delete_reports(through),
            holds=ahead > 0
            and through <= feed.last
            and (feed.acked is None or feed.acked >= through),
            then=lambda: setattr(feed, "pruned", through),
        )

    # --- and what must be true -----------------------------------------------------------------

    @invariant()
    def the_store_agrees_with_the_model(self) -> None:
        if self.gathered:
            return
        rows = self.bench.rows(
            "SELECT id, state, attempt, stop_reason, events, failures,"
            " (SELECT coalesce(sum(token_count), 0) FROM chunk WHERE chunk.job = job.id) FROM job"
        )
        assert {row[0]: row[1:] for row in rows} == {
            job_id(n): (job.state, job.attempt, job.stop, job.events, job.failures, job.tokens)
            for n, job in self.jobs.items()
            if not job.pruned
        }
        feed = self.feed
        reports = self.bench.rows("SELECT subject, seq FROM report ORDER BY seq")
        assert [seq for _, seq in reports] == list(range(feed.pruned + 1, feed.last + 1))
        assert {subject for subject, _ in reports} <= set(feed.subjects)
        assert len(set(feed.subjects)) == len(feed.subjects)
        seqs = self.bench.rows("SELECT id, last_seq FROM generation")
        assert dict(seqs) == {generation_id(n): w.seq for n, w in self.workers.items()}


def _ended(job: Job) -> bool:
    return not job.pruned and job.state in FINAL_STATES


def _another(stop: StopReason | None) -> StopReason | None:
    return StopReason.CANCEL if stop is None else None


def test_the_store_agrees_with_a_model_of_the_rules(campaign: NewCampaign) -> None:
    suite = campaign(small=300, large=10_000, unit=f"examples of {STEPS} steps")
    shrinks = os.environ.get(SHRINK_VARIABLE) != "0"
    settings = hypothesis.settings(
        max_examples=suite.count,
        stateful_step_count=STEPS,
        deadline=None,
        print_blob=True,
        verbosity=Verbosity.normal,
        phases=[phase for phase in Phase if shrinks or phase is not Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(StoreMachine, settings=settings)
    suite.done = suite.count
