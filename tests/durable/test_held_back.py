"""What only memory knows of jobs that wait for others: bounds, and that they cost nothing there."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest

from app.domain.errors import InvalidRequest, QueueFull
from app.domain.job import JobState
from app.product import Product
from app.services import dependents
from app.settings import QueueSettings
from shared.ids import JobId
from tests.durable.assembled import assembled, draft, running, settings_of
from tests.durable.order import assert_in_order
from tests.e2e.server import Site
from tests.waiting import wait_until

HELD_MAX = 3


@pytest.fixture
async def product(site: Site) -> AsyncGenerator[Product]:
    """The services, with room for three jobs that wait."""
    settings = settings_of(site, {"step_s": 0.05})
    queue = QueueSettings(interactive_max=HELD_MAX)
    async with assembled(msgspec.structs.replace(settings, queue=queue)) as made:
        yield made
    assert_in_order(site.store.path)


async def submit(product: Product, content: str = "[[tokens=1]]", *after: JobId) -> JobId:
    ticket = await product.submission.submit(draft(content, after=after))
    ticket.follower.close()
    return ticket.job_id


async def begin(product: Product) -> JobId:
    """A job that runs, and will for long."""
    job = await submit(product, "[[tokens=1000]]")
    await running(product, job)
    return job


async def test_the_prompt_of_a_job_that_waits_is_not_in_memory(product: Product) -> None:
    first = await begin(product)
    second = await submit(product, "[[tokens=1]]", first)
    live = product.ledger.get(second)
    assert live is not None
    assert (live.state, live.request, live.request_bytes) == (JobState.SCHEDULED, None, 0)


async def test_only_so_many_may_wait_for_one(
    product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependents, "SUCCESSORS_MAX", 2)
    first = await begin(product)
    waits = draft("[[tokens=1]]", after=(first,))
    with pytest.raises(QueueFull) as refused:
        await product.submission.submit_many([waits] * 3)
    assert refused.value.param == "jobs[2].after[0]"
    second, _ = (await product.submission.submit_many([waits] * 2)).ids
    with pytest.raises(QueueFull) as refused:
        await product.submission.submit(waits)
    assert refused.value.param == "after[0]"
    product.cancellation.request_nowait(second)
    await asyncio.to_thread(wait_until, lambda: product.ledger.get(second) is None, 10)
    await submit(product, "[[tokens=1]]", first)


async def test_those_that_wait_count_against_the_room_of_their_class(product: Product) -> None:
    first = await begin(product)
    for _ in range(HELD_MAX):
        await submit(product, "[[tokens=1]]", first)
    with pytest.raises(QueueFull) as refused:
        await submit(product, "[[tokens=1]]", first)
    assert refused.value.position == HELD_MAX
    await begin(product)  # what waits for nobody has its room


async def test_nothing_is_left_of_a_job_that_could_not_wait(product: Product) -> None:
    first = await begin(product)
    open_jobs = len(product.ledger)
    with pytest.raises(InvalidRequest) as refused:
        await submit(product, "[[tokens=1]]", first, JobId("job_" + "0" * 32))
    assert refused.value.param == "after[1]"
    assert len(product.ledger) == open_jobs
