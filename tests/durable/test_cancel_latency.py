"""How much is still computed after a cancel."""

import asyncio
import time
from typing import Final

import pytest

from app.domain.events import Ended
from app.domain.job import JobState
from app.product import Product
from app.services.ledger import LiveJob
from tests.durable.assembled import assembled, draft, running, settings_of
from tests.durable.figures import tell
from tests.e2e.server import Site

CANCELS: Final = 200
AT_ONCE: Final = 8
STEP_S: Final = 0.005
SLACK_S: Final = 0.020
AFTERWARDS_MAX: Final = round((STEP_S + SLACK_S) / STEP_S)
"""Tokens that one step and the slack are enough for."""


async def tokens_after_cancel(product: Product) -> tuple[int, float]:
    """How many tokens came after the cancel was committed, and how late the job's end."""
    ticket = await product.submission.submit(draft("[[tokens=100000]]"))
    live: LiveJob = await running(product, ticket.job_id, 3)
    await product.cancellation.cancel(live.id, "default")  # returns with the commit
    committed_at, before = time.monotonic(), live.output.completion_tokens
    while not live.channel.ended:
        await ticket.follower.take(10)
    late_s = time.monotonic() - committed_at
    (ended,) = [event for event in live.channel.events if isinstance(event, Ended)]
    assert ended.ending.state is JobState.CANCELLED
    assert ended.ending.usage.completion_tokens == live.output.completion_tokens
    return live.output.completion_tokens - before, late_s


@pytest.mark.quiet
@pytest.mark.timeout(120)
async def test_no_more_than_a_step_and_20_ms_of_tokens_are_computed_after_a_cancel(
    site: Site,
) -> None:
    async with assembled(settings_of(site, {"step_s": STEP_S}, rows=AT_ONCE)) as product:
        found: list[tuple[int, float]] = []

        async def some() -> None:
            count = CANCELS // AT_ONCE
            found.extend([await tokens_after_cancel(product) for _ in range(count)])

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    tokens = sorted(count for count, _ in found)
    times = sorted(late_s for _, late_s in found)
    p99 = CANCELS * 99 // 100 - 1
    tell("tokens after a cancel's commit, p99", tokens[p99], "tokens")
    tell("from a cancel's commit to the job's end, p99", times[p99] * 1000, "ms")
    assert len(found) == CANCELS
    assert tokens[p99] <= AFTERWARDS_MAX
