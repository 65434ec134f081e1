"""A wall clock that is set back and forth by an hour: nothing ends early, nothing fires twice."""

import asyncio
import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typing_extensions import override

from app.domain.events import Ended
from app.domain.job import JobState
from app.domain.view import JobView
from app.product import Product
from app.services.clock import Clock
from app.storage.reading import load_attempts
from shared.ids import JobId
from tests.durable.assembled import assembled, draft, running, settings_of
from tests.durable.disturbing import let_pass
from tests.e2e.server import Site
from tests.waiting import wait_until

HOUR = timedelta(hours=1)
TENANT = "default"


class SetClock(Clock):
    """The machine's clock, as somebody set it."""

    def __init__(self) -> None:
        self.off = timedelta()

    @override
    def now(self) -> datetime:
        return datetime.now(UTC) + self.off

    @override
    def monotonic(self) -> float:
        return time.monotonic()


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def product(site: Site, clock: SetClock) -> AsyncGenerator[Product]:
    """The services on that clock, with a worker of 20 ms a step."""
    async with assembled(settings_of(site, {"step_s": 0.02}), clock=clock) as made:
        yield made


async def submitted(product: Product, content: str, **fields: Any) -> JobId:
    ticket = await product.submission.submit(draft(content, **fields))
    return ticket.job_id


async def ended(product: Product, job: JobId) -> JobView:
    """The job, once it has ended."""
    follower = await product.following.follow(job, TENANT, -1)
    async with asyncio.timeout(30):
        while True:
            events = await follower.take(5)
            if events and isinstance(events[-1], Ended):
                break
    follower.close()
    return await product.jobs.get(job, TENANT)


async def set_back_and_forth(clock: SetClock) -> None:
    """An hour forward, two back, and right again, with time for whatever would fire."""
    for off in (HOUR, -HOUR, timedelta()):
        clock.off = off
        await asyncio.to_thread(let_pass, 0.3)


async def test_a_deadline_is_counted_down_and_not_compared(
    product: Product, clock: SetClock
) -> None:
    job = await submitted(product, "[[tokens=100]]", deadline_s=1_800.0)
    waits = await submitted(
        product, "[[tokens=1]]", deadline_s=1_800.0, scheduled_at=clock.now() + HOUR / 4
    )
    await running(product, job)
    await set_back_and_forth(clock)
    assert (await ended(product, job)).state is JobState.COMPLETED
    assert (await product.jobs.get(waits, TENANT)).state is JobState.SCHEDULED
    short = await submitted(product, "[[tokens=2000]]", deadline_s=1.0)
    await running(product, short)
    clock.off = -HOUR
    view = await ended(product, short)
    assert (view.state, view.stop_reason) == (JobState.FAILED, "deadline")


async def test_a_scheduled_job_fires_once_and_not_before_its_time(
    product: Product, clock: SetClock
) -> None:
    loop = asyncio.get_running_loop()
    began, wait_s = loop.time(), 1.5
    due = clock.now() + timedelta(seconds=wait_s)
    job = await submitted(product, "[[tokens=3]]", scheduled_at=due)
    await set_back_and_forth(clock)
    assert (await product.jobs.get(job, TENANT)).state is JobState.SCHEDULED
    clock.off = -HOUR
    view = await ended(product, job)
    assert view.state is JobState.COMPLETED
    assert loop.time() - began >= wait_s
    await set_back_and_forth(clock)
    assert len(await load_attempts(product.database.readers, job)) == 1


async def test_what_is_kept_for_its_own_time_is_not_deleted_early(
    product: Product, clock: SetClock
) -> None:
    kept = await submitted(product, "[[tokens=1]]", keep_s=1_800.0)
    await ended(product, kept)
    clock.off = HOUR
    brief = await submitted(product, "[[tokens=1]]", keep_s=0.0)
    await ended(product, brief)
    await asyncio.to_thread(wait_until, lambda: product.retention.jobs_deleted, 10, "a deletion")
    assert product.retention.jobs_deleted == 1
    assert (await product.jobs.get(kept, TENANT)).state is JobState.COMPLETED


async def test_ids_and_attempts_go_on_in_order(product: Product, clock: SetClock) -> None:
    jobs = [await submitted(product, "[[tokens=2]]")]
    for off in (HOUR, -HOUR, timedelta()):
        clock.off = off
        jobs.append(await submitted(product, "[[tokens=2]]"))
    assert jobs == sorted(jobs)
    for job in jobs:
        assert (await ended(product, job)).state is JobState.COMPLETED
