"""What is claimed for a worker, and what waits."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.dispatch.sessions import Session
from app.domain.gate import Gate
from app.domain.job import Durability, JobClass, NewJob
from app.domain.worker_state import WorkerState
from app.services.fleet import Worker
from app.services.ledger import LiveJob
from app.services.queues import Queues
from app.settings import QueueSettings
from shared.ids import CommandId, GenerationId, JobId, StoreId
from shared.messages import Credit, Ready

ROWS, PREFETCH = 4, 2
GENERATION = GenerationId("gen_1")
MODEL = "m"
BATCH = JobClass.BATCH


class Hand:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class Bench:
    """Queues, and the one worker they are for."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Hand()
        self.queues = Queues(self.clock, QueueSettings(**settings))
        session = Session(GENERATION, 1, StoreId("s"))
        self.worker = Worker(GENERATION, MODEL, session, Path("log"), 0.0, WorkerState.READY)
        self.worker.gate = Gate.SERVING
        self.worker.ready = Ready(GENERATION, ROWS, 100, "f", Credit(0, 0, 0))
        self._credit()

    def job(self, name: str, job_class: JobClass = JobClass.INTERACTIVE, **fields: Any) -> LiveJob:
        now = self.clock.now()
        new = NewJob(
            id=JobId(f"job_{name}"),
            kind="chat",
            durability=Durability.DURABLE,
            job_class=job_class,
            priority=0,
            surface="native",
            tenant=fields.pop("tenant", "default"),
            model=MODEL,
            created_at=now,
            scheduled_at=now,
            deadline_at=now,
            seed=1,
        )
        return LiveJob(new=new, request=None, cost=100, **fields)

    def push(self, *jobs: LiveJob) -> None:
        for job in jobs:
            self.queues.push(job)

    def claim(self) -> list[str]:
        """Claim all that may be claimed; their names."""
        names: list[str] = []
        held = self.queues.held(self.worker)
        while (live := self.queues.take(self.worker, held)) is not None:
            self.hold(live)
            names.append(live.id.removeprefix("job_"))
        return names

    def hold(self, live: LiveJob) -> None:
        live.begin_attempt(GENERATION, CommandId(1))
        self.worker.held[live.id] = live
        self._credit()

    def end(self, live: LiveJob) -> None:
        del self.worker.held[live.id]
        self.queues.settle(live)
        self._credit()

    def _credit(self) -> None:
        self.worker.credit = Credit(ROWS + PREFETCH - len(self.worker.held), 0, 0)


def suspect(bench: Bench, name: str) -> LiveJob:
    job = bench.job(name)
    job.record.deaths, job.record.alone = 1, True
    return job


def test_the_last_place_beyond_the_rows_is_kept_for_interactive_jobs() -> None:
    bench = Bench()
    bench.push(*(bench.job(f"b{n}", BATCH) for n in range(9)))
    assert bench.claim() == ["b0", "b1", "b2", "b3", "b4"]
    assert not bench.queues.admits(bench.job("b9", BATCH), bench.worker)
    bench.push(bench.job("i"))
    assert bench.claim() == ["i"]


def test_a_suspect_goes_first_when_nothing_runs_and_then_alone() -> None:
    bench = Bench()
    first = suspect(bench, "s")
    bench.push(bench.job("a"), first)
    assert bench.queues.position(first) == 0
    assert bench.claim() == ["s"]
    assert bench.claim() == []
    assert not bench.queues.admits(bench.job("b"), bench.worker)
    first.record.tokens += 1
    assert bench.claim() == ["a"]


def test_a_suspect_lets_others_pass_until_it_has_waited_too_long() -> None:
    bench = Bench(starve_s=60.0)
    running, late = bench.job("a"), suspect(bench, "s")
    bench.hold(running)
    bench.push(late, bench.job("b"))
    assert bench.claim() == ["b"]
    bench.clock.seconds += 60
    bench.push(bench.job("c"))
    assert bench.claim() == []
    for job in list(bench.worker.held.values()):
        bench.end(job)
    assert bench.claim() == ["s"]


def test_a_tenant_is_charged_its_estimate_and_then_what_it_took() -> None:
    bench = Bench()
    jobs = [bench.job(f"a{n}", tenant="a") for n in range(3)]
    bench.push(*jobs, bench.job("b0", tenant="b"))
    assert bench.claim() == ["a0", "b0", "a1", "a2"]
    assert jobs[0].charged == 100
    jobs[0].record.tokens = 7
    bench.end(jobs[0])
    assert jobs[0].charged == 0


def test_a_tenant_at_its_limit_is_not_admitted_at_once() -> None:
    bench = Bench(tenant_rows_max=1)
    bench.hold(bench.job("a", tenant="a"))
    assert not bench.queues.admits(bench.job("b", tenant="a"), bench.worker)
    assert bench.queues.admits(bench.job("c", tenant="b"), bench.worker)
    bench.push(bench.job("b", tenant="a"))
    assert bench.queues.urgent(bench.worker) == 0
    assert bench.claim() == []


def test_a_withdrawn_job_leaves_nothing_behind() -> None:
    bench = Bench()
    jobs = [bench.job("a"), suspect(bench, "s")]
    bench.push(*jobs)
    assert (len(bench.queues), bench.queues.of_tenant("default")) == (2, 2)
    for job in jobs:
        assert bench.queues.withdraw(job)
        assert not bench.queues.withdraw(job)
    assert (len(bench.queues), bench.queues.of_tenant("default")) == (0, 0)
    assert bench.queues.of_class(JobClass.INTERACTIVE) == 0
    assert bench.queues.models() == []


@pytest.mark.parametrize("job_class", [JobClass.BACKGROUND, BATCH])
def test_a_class_that_starves_is_said_to(job_class: JobClass) -> None:
    bench = Bench(starve_s=60.0)
    bench.push(bench.job("a", job_class))
    assert not bench.queues.starves(MODEL, job_class)
    bench.clock.seconds += 60
    assert bench.queues.starves(MODEL, job_class)
