"""Reports are kept for whoever reads them, but not for ever and not without bound."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.domain.feed import Consumer, ConsumerState, Selection
from app.domain.report_errors import ConsumerParked
from app.services import parking as parking_module
from app.storage.operations import Void
from app.storage.report_retention import delete_reports, load_old_reports, oldest_report
from app.storage.verify import verify
from tests.integration.reports.reading import Reading, reading, soon
from tests.integration.storage.making import NOW, query

WEEK_S = 7 * 86_400.0


async def create(
    store: Reading, name: str = "c", start: Any = "earliest", **selection: Any
) -> None:
    await store.consumers.create(name, Selection(**selection), start)


async def found(store: Reading, name: str = "c") -> Consumer:
    return await store.consumers.get(name, None)


async def passed_once(store: Reading, **settings: Any) -> None:
    """Parking looks, once."""
    parking = store.parking(**settings)
    parking._started_at = store.clock.monotonic() - 2 * parking_module.GRACE_S
    await parking._pass()
    parking.stop()


async def test_old_reports_stay_while_a_live_consumer_has_not_passed_them(store: Reading) -> None:
    await store.end_jobs(5)
    await create(store)
    readers, later = store.database.readers, NOW + timedelta(days=60)
    assert await load_old_reports(readers, later) is None
    assert await oldest_report(readers) is None
    assert await store.database.writer.submit(delete_reports(1)) == Void("feed.prune", "")
    await store.consumers.ack("c", None, store.cursor(3), None)
    assert await load_old_reports(readers, later) == 3
    await store.write(delete_reports(3))
    assert await load_old_reports(readers, later) is None
    state = await store.feed.state()
    assert (state.last, state.pruned, state.lowest) == (5, 3, 4)
    ((size,),) = query(store.database.path.parent, "SELECT sum(length(payload)) FROM report")
    assert state.bytes == size
    assert await verify(store.database.readers) == []


async def test_one_that_begins_later_begins_with_what_is_kept(store: Reading) -> None:
    jobs = await store.end_jobs(5)
    await store.write(delete_reports(2))
    await create(store)
    assert (await found(store)).acked == 2
    _, page = await store.consumers.page("c", None, 100)
    assert [report.subject for report in page.reports] == jobs[2:]


async def test_a_consumer_whom_nothing_concerns_keeps_nothing(store: Reading) -> None:
    await create(store, tags={"team": "a"})
    await store.end_jobs(5)
    _, page = await store.consumers.page("c", None, 100)
    assert page.reports == ()
    await store.settled()
    assert ((await found(store)).acked, (await found(store)).passed) == (0, 5)
    assert await load_old_reports(store.database.readers, NOW + timedelta(days=60)) == 5


async def test_a_consumer_that_stays_away_is_parked(store: Reading) -> None:
    await create(store)
    store.consumers.heard_at.clear()  # as after a start
    store.clock.passes(WEEK_S - 1)
    await passed_once(store)
    assert (await found(store)).state is ConsumerState.LIVE
    store.clock.passes(2)
    await passed_once(store)
    consumer = await found(store)
    assert consumer.state is ConsumerState.PARKED
    assert consumer.parked_reason == "it was not heard of for 7 days, 0:00:00"


async def test_one_that_reads_is_not_parked_and_that_is_written_down_now_and_then(
    store: Reading, tmp_path: Path
) -> None:
    await create(store)
    store.clock.passes(WEEK_S - 1)
    await store.consumers.page("c", None, 1)
    seen_at = store.clock.now()
    for _ in range(3):
        store.clock.passes(10)
        await store.consumers.page("c", None, 1)
    await store.settled()
    assert (await found(store)).seen_at == seen_at
    await passed_once(store)
    assert (await found(store)).state is ConsumerState.LIVE


async def test_a_clock_that_is_set_forward_parks_nobody(store: Reading) -> None:
    await create(store)
    store.clock.moment += timedelta(days=365)
    await passed_once(store)
    assert (await found(store)).state is ConsumerState.LIVE


async def test_after_a_start_everybody_gets_an_hour_to_return(store: Reading) -> None:
    await create(store)
    store.consumers.heard_at.clear()
    store.clock.passes(10 * WEEK_S)
    parking = store.parking()
    parking._started_at = store.clock.monotonic()
    await parking._pass()
    assert (await found(store)).state is ConsumerState.LIVE
    store.clock.passes(parking_module.GRACE_S + 1)
    await parking._pass()
    parking.stop()
    assert (await found(store)).state is ConsumerState.PARKED


async def test_one_that_follows_in_silence_is_there(store: Reading) -> None:
    await create(store)
    _, follower = await store.consumers.follow("c", None, None)
    store.consumers.heard_at.clear()
    store.clock.passes(2 * WEEK_S)
    await passed_once(store)
    assert (await found(store)).state is ConsumerState.LIVE
    follower.close()
    await passed_once(store)
    assert (await found(store)).state is ConsumerState.PARKED


async def test_at_the_byte_cap_what_all_have_read_goes_and_then_the_slowest_is_parked(
    store: Reading,
) -> None:
    await create(store, "slow")
    await create(store, "quick")
    await store.end_jobs(200)
    await store.consumers.ack("quick", None, store.cursor(150), None)
    await store.consumers.ack("slow", None, store.cursor(50), None)
    cap = (await store.feed.state()).bytes
    _, follower = await store.consumers.follow("slow", None, None)
    await follower.take(1)
    waiting = asyncio.ensure_future(follower.take(60))
    await store.end_jobs(20)
    await soon(waiting)
    waiting = asyncio.ensure_future(follower.take(60))
    await passed_once(store, reports_bytes_max=max(65_536, cap))
    assert (await found(store, "slow")).state is ConsumerState.LIVE
    assert (await store.feed.state()).pruned >= 20
    await passed_once(store, reports_bytes_max=65_536)
    state = await store.feed.state()
    assert state.bytes <= 65_536
    assert state.pruned > 50
    slow, quick = await found(store, "slow"), await found(store, "quick")
    assert (slow.state, quick.state) == (ConsumerState.PARKED, ConsumerState.LIVE)
    assert slow.parked_reason == "it kept the feed over its 65536 bytes"
    with pytest.raises(ConsumerParked):
        await soon(waiting)
    assert await verify(store.database.readers) == []


async def test_a_start_looks_by_itself_and_again_after_something_was_published(
    store: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking_module, "LOOK_S", 0.01)
    looked = asyncio.Semaphore(0)
    parking = store.parking()
    original = parking._make_room

    async def look() -> None:
        await original()
        looked.release()

    monkeypatch.setattr(parking, "_make_room", look)
    parking.start()
    await soon(looked.acquire())
    await store.end_jobs(1)
    await soon(looked.acquire())
    parking.stop()
    await store.end_jobs(1)
    assert looked.locked()


async def test_parking_outlives_the_process(tmp_path: Path) -> None:
    async with reading(tmp_path / "data") as store:
        await create(store)
        store.consumers.heard_at.clear()
        store.clock.passes(WEEK_S + 1)
        await passed_once(store)
    async with reading(tmp_path / "data") as store:
        with pytest.raises(ConsumerParked):
            await store.consumers.page("c", None, 1)
