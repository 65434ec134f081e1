"""The parent against a worker that answers late, wrongly or not at all."""

import asyncio
import gc
import signal
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from app.domain.job import Durability, JobState, StopReason
from app.domain.receipts import Rank
from app.domain.view import JobView
from app.domain.worker_state import WorkerState
from app.product import Product
from app.services import cancellation
from app.services.launching import Launcher
from app.services.ledger import LiveJob
from app.storage.accounting import load_receipt_of
from app.storage.committing import CommitHooks
from app.storage.driver import Driver
from app.storage.errors import StoreFull
from app.storage.operations import Operation
from app.storage.reading import load_generation
from shared.ids import JobId
from shared.messages import Ack, Cancel, Heartbeat, Held, Replay, RunJob
from tests.durable.assembled import assembled, draft, running, settings_of
from tests.durable.order import assert_in_order
from tests.durable.played_worker import (
    PATIENCE_S,
    Cast,
    PlayedWorker,
    delta,
    finished,
    stopped,
)
from tests.e2e.server import Site
from tests.waiting import wait_until

RESEND_S = 0.1
REPLACE_S = 0.8


class HeldDisk:
    """Keeps what is to be committed waiting, then has no room for it, then has."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.full = False

    def hooks(self) -> CommitHooks:
        return CommitHooks(before_begin=self._before)

    def _before(self, _driver: Driver, _operations: Sequence[Operation]) -> None:
        self.free.wait(PATIENCE_S)
        if self.full:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error


@dataclass
class Stage:
    """The services, whose workers are played."""

    product: Product
    cast: Cast
    disk: HeldDisk

    async def submit(self, content: str, durability: Durability = Durability.DURABLE) -> JobId:
        ticket = await self.product.submission.submit(draft(content, durability))
        ticket.follower.close()
        return ticket.job_id

    async def begin(self, content: str = "first") -> tuple[PlayedWorker, RunJob]:
        """The first worker with a job that it has accepted, and one token of it."""
        number = len(self.cast.workers[0].all_heard(RunJob)) if self.cast.workers else 0
        job = await self.submit(content)
        worker = await self.cast.enters()
        run = await worker.hears(RunJob, number + 1)
        assert run.job == job
        await worker.accept(run)
        await worker.tell(delta(run, 0, "a"))
        await running(self.product, job)
        return worker, run

    async def ended(self, job: JobId) -> JobView:
        """The job, once it has ended."""
        live = self.product.ledger.get(job)
        if live is not None:
            follower = live.channel.follow()
            while not live.channel.ended:
                assert await follower.take(PATIENCE_S), f"{job} does not end"
        return await self.view(job)

    async def received(self, worker: PlayedWorker, seq: int) -> None:
        """The parent has taken in this frame, committed or not."""
        known = self.product.fleet.get(worker.generation)
        assert known is not None
        await asyncio.to_thread(wait_until, lambda: known.session.received >= seq, PATIENCE_S)

    async def view(self, job: JobId) -> JobView:
        return await self.product.jobs.get(job, "default")


@pytest.fixture
async def stage(site: Site, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Stage]:
    cast, disk = Cast(), HeldDisk()

    def spawn(launcher: Launcher, *start: Any) -> PlayedWorker:
        return cast.spawn(launcher, *start)

    monkeypatch.setattr(Launcher, "spawn", spawn)
    monkeypatch.setattr(cancellation, "RESEND_S", RESEND_S)
    monkeypatch.setattr(cancellation, "REPLACE_S", REPLACE_S)
    async with assembled(settings_of(site, {}, stop_grace_s=0.0), disk.hooks()) as product:
        yield Stage(product, cast, disk)
    assert_in_order(site.store.path)


async def test_an_unanswered_cancel_is_sent_again_and_then_its_worker_is_replaced(
    stage: Stage,
) -> None:
    worker, run = await stage.begin()
    _, other = await stage.begin("other")
    began = time.monotonic()
    stage.product.cancellation.request_nowait(run.job)
    first, second = await worker.hears(Cancel), await worker.hears(Cancel, 2)
    assert first == second
    assert time.monotonic() - began >= RESEND_S
    replacement = await stage.cast.enters(2)
    assert time.monotonic() - began >= REPLACE_S
    assert worker.signals == [signal.SIGKILL]
    assert (await stage.ended(run.job)).state is JobState.CANCELLED
    again = await replacement.hears(RunJob)
    assert (again.job, again.attempt, again.resume[0].tokens) == (other.job, 2, (0,))
    view = await stage.view(other.job)
    assert (view.losses, view.failures) == (0, 0)


async def test_an_answered_cancel_is_not_sent_again(stage: Stage) -> None:
    worker, run = await stage.begin()
    stage.product.cancellation.request_nowait(run.job)
    await worker.hears(Cancel)
    await worker.tell(stopped(run, 1))
    assert (await stage.ended(run.job)).state is JobState.CANCELLED
    _, other = await stage.begin("other")
    # The time passes in which it would have been sent again, and its worker replaced.
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(REPLACE_S + RESEND_S):
            await worker.hears(Cancel, 2)
    assert not worker.signals
    await worker.tell(finished(other, 1))
    assert (await stage.ended(other.job)).state is JobState.COMPLETED


async def test_a_finish_that_was_on_its_way_wins_over_a_cancel(stage: Stage) -> None:
    worker, run = await stage.begin()
    stage.product.cancellation.request_nowait(run.job)
    await worker.tell(delta(run, 1, "b"), finished(run, 2))
    view = await stage.ended(run.job)
    assert (view.state, view.stop_reason, view.usage.completion_tokens) == (
        "completed",
        "cancel",
        2,
    )


async def test_a_frame_that_came_twice_or_out_of_order_counts_once(stage: Stage) -> None:
    worker, run = await stage.begin()
    worker.seq -= 1
    await worker.tell(delta(run, 0, "a"))
    worker.seq += 1
    await worker.tell(finished(run, 2))
    assert (await worker.hears(Replay)).from_seq == worker.seq - 1
    worker.seq -= 2
    await worker.tell(delta(run, 1, "b"))
    await worker.tell(finished(run, 2))
    view = await stage.ended(run.job)
    assert (view.state, view.usage.completion_tokens) == ("completed", 2)
    assert max(ack.seq for ack in worker.all_heard(Ack)) == worker.seq


async def test_a_loss_that_only_the_heartbeat_shows_is_asked_for(stage: Stage) -> None:
    worker, _ = await stage.begin()
    await worker.say(Heartbeat(worker.generation, worker.seq + 3, 0, 0, 0, 0))
    assert (await worker.hears(Replay)).from_seq == worker.seq + 1
    for _ in range(3):
        await worker.tell()


async def test_a_running_job_is_told_with_the_tokens_it_has_so_far(stage: Stage) -> None:
    worker, run = await stage.begin()
    await worker.tell(delta(run, 1, "b"))
    acknowledged = lambda: any(ack.seq >= worker.seq for ack in worker.all_heard(Ack))  # noqa: E731
    await asyncio.to_thread(wait_until, acknowledged, PATIENCE_S)
    assert (await stage.view(run.job)).usage.completion_tokens == 2
    await worker.tell(finished(run, 2))
    assert (await stage.ended(run.job)).usage.completion_tokens == 2


async def test_nothing_keeps_a_job_in_memory_that_has_ended(stage: Stage) -> None:
    worker, run = await stage.begin()
    await worker.tell(delta(run, 1, "b"), finished(run, 2))
    await stage.ended(run.job)
    await worker.tell()
    gc.collect()
    assert [o.id for o in gc.get_objects() if isinstance(o, LiveJob)] == []


async def test_a_running_job_that_its_worker_does_not_hold_goes_back(stage: Stage) -> None:
    worker, run = await stage.begin()
    other = await stage.submit("other")
    unanswered = await worker.hears(RunJob, 2)
    await worker.greet()
    await worker.hears(RunJob, 4)
    sent = {run.job: run for run in worker.all_heard(RunJob)[2:]}
    assert (sent[other].command, sent[other].attempt) == (unanswered.command, 1)
    assert (sent[run.job].attempt, sent[run.job].resume[0].tokens) == (2, (0,))
    view = await stage.view(run.job)
    assert (view.losses, view.state) == (1, JobState.RUNNING)


async def test_what_nobody_knows_of_is_stopped_and_counts_nothing(stage: Stage) -> None:
    worker, run = await stage.begin()
    await worker.greet(Held(JobId("job_unknown"), 3), Held(run.job, 1))
    cancel = await worker.hears(Cancel)
    assert (cancel.job, cancel.attempt, cancel.command) == ("job_unknown", 3, 0)
    later = msgspec.structs.replace(run, attempt=7)
    await worker.tell(delta(later, 1, "no"), delta(run, 1, "yes"))
    assert (await worker.hears(Cancel, 2)).attempt == 7
    await worker.tell(finished(run, 2))
    view = await stage.ended(run.job)
    assert (view.state, view.usage.completion_tokens) == ("completed", 2)


async def test_tokens_of_a_durable_job_that_skip_some_cost_the_worker(stage: Stage) -> None:
    worker, run = await stage.begin()
    await worker.tell(delta(run, 1, "b"), delta(run, 3, "d"))
    replacement = await stage.cast.enters(2)
    again = await replacement.hears(RunJob)
    assert (again.attempt, again.resume[0].tokens) == (2, (0,))
    await replacement.accept(again)
    await replacement.tell(delta(again, 1, "b"), finished(again, 1))
    assert (await stage.ended(run.job)).usage.completion_tokens == 2


async def test_tokens_of_an_attached_job_that_skip_some_cost_that_job_alone(stage: Stage) -> None:
    worker, other = await stage.begin()
    job = await stage.submit("attached", Durability.ATTACHED)
    run = await worker.hears(RunJob, 2)
    await worker.accept(run)
    await worker.tell(delta(run, 3, "d"), delta(other, 1, "b"))
    assert (await stage.ended(job)).state is JobState.FAILED
    assert (await worker.hears(Cancel)).job == job
    await worker.tell(finished(other, 2))
    assert (await stage.ended(other.job)).state is JobState.COMPLETED
    assert len(stage.cast.workers) == 1


async def test_an_end_of_a_durable_job_that_was_never_accepted_costs_the_worker(
    stage: Stage,
) -> None:
    worker, other = await stage.begin()
    job = await stage.submit("second")
    run = await worker.hears(RunJob, 2)
    await worker.tell(finished(run, 0))
    replacement = await stage.cast.enters(2)
    for number in (1, 2):
        again = await replacement.hears(RunJob, number)
        assert again.attempt == 2
        await replacement.accept(again)
        token = 1 if again.job == other.job else 0
        await replacement.tell(delta(again, token, "b"), finished(again, 1))
    assert (await stage.ended(job)).usage.completion_tokens == 1
    assert (await stage.ended(other.job)).usage.completion_tokens == 2


async def test_output_of_an_attached_job_that_was_never_accepted_costs_that_job_alone(
    stage: Stage,
) -> None:
    worker, other = await stage.begin()
    job = await stage.submit("attached", Durability.ATTACHED)
    run = await worker.hears(RunJob, 2)
    await worker.tell(delta(run, 0, "a"), delta(other, 1, "b"))
    ended = await stage.ended(job)
    assert (ended.state, ended.usage.completion_tokens) == (JobState.FAILED, 0)
    await worker.tell(finished(other, 2))
    assert (await stage.ended(other.job)).state is JobState.COMPLETED
    assert len(stage.cast.workers) == 1


async def test_a_frame_that_was_decided_on_a_cancel_which_found_no_room_is_decided_again(
    stage: Stage,
) -> None:
    """The cancel is answered with the full disk and forgotten. The frame behind it ends the job by
    that cancel; it must neither count so nor be waited for."""
    worker, run = await stage.begin()
    stage.disk.free.clear()
    live, seen = stage.product.ledger.get(run.job), worker.seq
    assert live is not None
    refused = stage.product.cancellation._request(live, StopReason.CANCEL, patient=False)
    assert refused is not None
    await worker.tell(delta(run, 1, "b"), finished(run, 2))
    await stage.received(worker, seen + 1)
    stage.disk.full = True
    stage.disk.free.set()
    with pytest.raises(StoreFull):
        await refused
    stage.disk.full = False
    replacement = await stage.cast.enters(2)
    again = await replacement.hears(RunJob)
    assert (again.attempt, again.resume[0].tokens) == (2, (0,))
    await replacement.accept(again)
    await replacement.tell(delta(again, 1, "b"), finished(again, 1))
    view = await stage.ended(run.job)
    assert (view.state, view.stop_reason, view.usage.completion_tokens) == ("completed", None, 2)


@pytest.mark.parametrize("how", ["dies", "is given up"])
async def test_a_loss_that_was_decided_on_a_cancel_which_found_no_room_is_decided_again(
    stage: Stage, how: str
) -> None:
    """Its worker has one receipt and is seen to be gone, whoever asks, and the job goes on."""
    worker, run = await stage.begin()
    _, other = await stage.begin("other")
    stage.disk.free.clear()
    live, known = stage.product.ledger.get(run.job), stage.product.fleet.get(worker.generation)
    assert live is not None
    assert known is not None
    refused = stage.product.cancellation._request(live, StopReason.CANCEL, patient=False)
    assert refused is not None
    if how == "dies":
        worker.die()
    else:
        stage.product.workers.broken(known, "a test says so")
    await asyncio.to_thread(wait_until, lambda: known.state is not WorkerState.READY, PATIENCE_S)
    stage.disk.full = True
    stage.disk.free.set()
    with pytest.raises(StoreFull):
        await refused
    stage.disk.full = False
    replacement = await stage.cast.enters(2)
    for number in (1, 2):
        again = await replacement.hears(RunJob, number)
        assert again.job in (run.job, other.job)
        assert (again.attempt, again.resume[0].tokens) == (2, (0,))
        await replacement.accept(again)
        await replacement.tell(delta(again, 1, "b"), finished(again, 1))
        view = await stage.ended(again.job)
        assert (view.state, view.stop_reason, view.losses) == ("completed", None, 1)
    row = await load_generation(stage.product.database.readers, worker.generation)
    assert row is not None
    assert row.state is WorkerState.GONE
    receipt = await load_receipt_of(stage.product.database.readers, worker.generation)
    assert receipt is not None
    assert (receipt.rank, receipt.revision) == (Rank.CRASH, 1)


async def test_a_job_that_its_worker_does_not_hold_goes_back_also_when_its_cancel_found_no_room(
    stage: Stage,
) -> None:
    worker, run = await stage.begin()
    stage.disk.free.clear()
    live = stage.product.ledger.get(run.job)
    assert live is not None
    refused = stage.product.cancellation._request(live, StopReason.CANCEL, patient=False)
    assert refused is not None
    await worker.greet()
    await asyncio.to_thread(wait_until, lambda: live.state.final, PATIENCE_S)
    stage.disk.full = True
    stage.disk.free.set()
    with pytest.raises(StoreFull):
        await refused
    stage.disk.full = False
    again = await worker.hears(RunJob, 2)
    assert (again.job, again.attempt, again.resume[0].tokens) == (run.job, 2, (0,))
    await worker.accept(again)
    await worker.tell(delta(again, 1, "b"), finished(again, 1))
    view = await stage.ended(run.job)
    assert (view.state, view.stop_reason, view.losses) == ("completed", None, 1)
