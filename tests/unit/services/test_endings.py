"""What is shown of an ending that could not be stored."""

import asyncio
from typing import Any, cast

import pytest

from app.domain.job import Durability, JobState
from app.services.clock import SystemClock
from app.services.endings import Endings
from app.services.fleet import Fleet
from app.services.ledger import Ledger, LiveJob
from app.storage.errors import StoreFailed
from app.storage.operations import Operation, Void
from app.storage.writer import OutcomeFuture
from tests.integration.storage.making import make_job


class Refusing:
    """A writer that stores nothing."""

    def __init__(self, result: Exception | Void) -> None:
        self._result = result

    def submit(self, _operation: Operation) -> OutcomeFuture:
        future: OutcomeFuture = asyncio.get_running_loop().create_future()
        if isinstance(self._result, Void):
            future.set_result(self._result)
        else:
            future.set_exception(self._result)
        return future


async def end(durability: Durability, result: Exception | Void) -> LiveJob:
    """A waiting job that is to end, and whose ending is not stored."""
    ledger = Ledger()
    endings = Endings(ledger, Fleet(), cast("Any", Refusing(result)), SystemClock())
    live = LiveJob(new=make_job(durability=durability), request=None)
    ledger.add(live)
    endings.end_waiting(live, JobState.CANCELLED, None)
    await asyncio.sleep(0)
    return live


REFUSALS = [StoreFailed("the store is closed"), Void("job.end_waiting", "job")]


@pytest.mark.parametrize("result", REFUSALS)
async def test_an_ending_that_is_not_stored_is_not_shown_of_a_job_that_lives_on(
    result: Exception | Void,
) -> None:
    live = await end(Durability.DURABLE, result)
    assert not live.channel.events


@pytest.mark.parametrize("result", REFUSALS)
async def test_who_is_attached_is_told_the_end_all_the_same(result: Exception | Void) -> None:
    live = await end(Durability.ATTACHED, result)
    assert live.channel.ended
