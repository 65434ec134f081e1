"""Jobs that a worker has no room for: they come again, each time later, and nothing is counted."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from app.domain import retry
from app.domain.job import Durability, JobState
from app.product import Product
from app.services.launching import Launcher
from app.storage.reading import load_attempts
from shared.failures import Failure
from shared.ids import JobId
from shared.messages import Refused, RunJob
from tests.durable.assembled import assembled, draft, settings_of
from tests.durable.order import assert_in_order
from tests.durable.played_worker import PATIENCE_S, Cast, PlayedWorker, finished
from tests.e2e.server import Site
from tests.waiting import wait_until

NO_ROOM = Failure(code="server_overloaded", message="There is no room.")
Begin = Callable[[], AbstractAsyncContextManager[tuple[Product, Cast]]]


@pytest.fixture
async def begin(site: Site, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Begin]:
    """Starts the services, whose workers are played; a first snooze takes 0.1 s or half of it."""
    monkeypatch.setattr(retry, "BACKOFF_FIRST_S", 0.1)

    @asynccontextmanager
    async def started() -> AsyncGenerator[tuple[Product, Cast]]:
        cast = Cast()

        def spawn(launcher: Launcher, *start: Any) -> PlayedWorker:
            return cast.spawn(launcher, *start)

        monkeypatch.setattr(Launcher, "spawn", spawn)
        async with assembled(settings_of(site, {}, stop_grace_s=0.0)) as product:
            yield product, cast

    yield started
    assert_in_order(site.store.path)


async def submit(product: Product, durability: Durability = Durability.DURABLE) -> JobId:
    ticket = await product.submission.submit(draft("hello", durability))
    ticket.follower.close()
    return ticket.job_id


async def refuse(worker: PlayedWorker, count: int = 1) -> float:
    """The worker has no room for the so-manieth attempt; when it said so."""
    run = await worker.hears(RunJob, count)
    await worker.tell(Refused(run.command, run.job, run.attempt, "later", NO_ROOM))
    return time.monotonic()


async def refuse_all(worker: PlayedWorker) -> None:
    for count in itertools.count(1):
        await refuse(worker, count)


async def state(product: Product, job: JobId, wanted: JobState) -> None:
    live = product.ledger.get(job)
    assert live is not None
    await asyncio.to_thread(wait_until, lambda: live.state is wanted, PATIENCE_S)


async def test_it_comes_again_each_time_later_and_nothing_is_counted(begin: Begin) -> None:
    async with begin() as (product, cast):
        job = await submit(product)
        worker = await cast.enters()
        waits: list[float] = []
        for attempt in (1, 2, 3):
            refused = await refuse(worker, attempt)
            await worker.hears(RunJob, attempt + 1)
            waits.append(time.monotonic() - refused)
        assert all(wait >= least for wait, least in zip(waits, (0.05, 0.1, 0.2), strict=True))
        run = await worker.hears(RunJob, 4)
        await worker.accept(run)
        await worker.tell(finished(run, 0))
        await asyncio.to_thread(wait_until, lambda: product.ledger.get(job) is None, PATIENCE_S)
        view = await product.jobs.get(job, "default")
        assert (view.state, view.attempt) == (JobState.COMPLETED, 4)
        assert (view.failures, view.losses, view.preemptions) == (0, 0, 0)
        attempts = await load_attempts(product.database.readers, job)
        assert [attempt.outcome for attempt in attempts] == [*["refused"] * 3, "finished"]


async def test_it_is_cancelled_while_it_snoozes(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "BACKOFF_FIRST_S", 60.0)
    async with begin() as (product, cast):
        job = await submit(product)
        await refuse(await cast.enters())
        await state(product, job, JobState.AVAILABLE)
        await product.cancellation.cancel(job, "default")
        await asyncio.to_thread(wait_until, lambda: product.ledger.get(job) is None, PATIENCE_S)
        assert (await product.jobs.get(job, "default")).state is JobState.CANCELLED


async def test_it_snoozes_on_over_a_restart(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "BACKOFF_FIRST_S", 60.0)
    async with begin() as (product, cast):
        job = await submit(product)
        await refuse(await cast.enters())
        await state(product, job, JobState.AVAILABLE)
        other = await submit(product)
        await cast.workers[0].hears(RunJob, 2)
    async with begin() as (product, cast):
        worker = await cast.enters()
        assert (await worker.hears(RunJob)).job == other
        view = await product.jobs.get(job, "default")
        assert (view.state, view.attempt, view.position) == (JobState.AVAILABLE, 1, None)


async def test_an_attached_request_is_refused_no_longer_than_it_would_wait_for_a_worker(
    begin: Begin,
) -> None:
    async with begin() as (product, cast):
        product.boot._returns._resume_wait_s = 0.4
        job = await submit(product, Durability.ATTACHED)
        refusing = asyncio.ensure_future(refuse_all(await cast.enters()))
        await asyncio.to_thread(wait_until, lambda: product.ledger.get(job) is None, PATIENCE_S)
        refusing.cancel()
        view = await product.jobs.get(job, "default")
        assert view.failure is not None
        assert view.failure.code == "server_overloaded"
