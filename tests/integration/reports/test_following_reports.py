"""Following the feed: each report once and in order, as soon as it is committed."""

import asyncio
from collections.abc import Sequence

import pytest

from app.domain.errors import JobServerError, StreamInterrupted
from app.domain.feed import Selection
from app.domain.job import JobClass
from app.domain.report_errors import ConsumerNotFound, ConsumerParked
from app.services import report_feed
from app.services.report_feed import ReportFollower
from tests.integration.reports.reading import Reading, soon

EVERYTHING = Selection(classes=tuple(JobClass), include_attached=True)


async def taken(follower: ReportFollower, count: int) -> list[str]:
    """So many subjects, as they come."""
    found: list[str] = []
    while len(found) < count:
        reports = await follower.take(5)
        assert reports, f"only {len(found)} of {count} came"
        found += [report.subject for report in reports]
    return found


async def test_a_follower_is_shown_what_was_there_and_what_comes(store: Reading) -> None:
    before = await store.end_jobs(3)
    follower = store.feed.follow(EVERYTHING, 1)
    assert await taken(follower, 2) == before[1:]
    waiting = asyncio.ensure_future(follower.take(60))
    jobs = await store.end_jobs(2)
    assert [report.subject for report in await soon(waiting)] == jobs
    assert follower.cursor == 5


async def test_silence_is_an_empty_answer(store: Reading) -> None:
    follower = store.feed.follow(EVERYTHING, 0)
    assert await follower.take(0.01) == []


async def test_what_a_follower_is_not_shown_moves_it_all_the_same(store: Reading) -> None:
    follower = store.feed.follow(Selection(tags={"a": "b"}), 0)
    assert await follower.take(0.01) == []
    await store.end_jobs(3)
    async with asyncio.timeout(10):
        while follower.cursor < 3:
            assert await follower.take(0.01) == []
    assert follower.cursor == 3


async def test_many_followers_are_shown_the_same_while_it_is_read_once(
    store: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    followers = [store.feed.follow(EVERYTHING, 0) for _ in range(50)]
    assert await asyncio.gather(*(follower.take(0.01) for follower in followers)) == [[]] * 50
    pages = 0
    original = report_feed.load_feed_page

    async def counted(*args: object) -> object:
        nonlocal pages
        pages += 1
        return await original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(report_feed, "load_feed_page", counted)
    waiting = asyncio.gather(*(taken(follower, 4) for follower in followers))
    jobs = [job for _ in range(4) for job in await store.end_jobs(1)]
    assert await soon(waiting) == [jobs] * 50
    assert pages <= 3 * 4


async def test_one_who_is_behind_the_latest_reads_the_store(
    store: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_feed, "SCAN", 3)
    quick, slow = (store.feed.follow(EVERYTHING, 0) for _ in range(2))
    assert (await quick.take(0.01), await slow.take(0.01)) == ([], [])
    jobs = await store.end_jobs(report_feed.TAIL + 20)
    assert await taken(quick, len(jobs)) == jobs
    more = await store.end_jobs(5)
    assert await taken(quick, 5) == more
    assert await taken(slow, len(jobs) + 5) == jobs + more


async def test_what_is_rare_is_found_behind_much_that_is_not_shown(
    store: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_feed, "SCAN", 5)
    monkeypatch.setattr(report_feed, "SCANS_MAX", 2)
    await store.end_jobs(57)
    (rare,) = await store.end_jobs(1, tags={"rare": "yes"})
    selection = Selection(tags={"rare": "yes"})
    follower = store.feed.follow(selection, 0)
    assert await taken(follower, 1) == [rare]
    pages = [await store.feed.page(selection, 0, 10)]
    while not pages[-1].end:
        pages.append(await store.feed.page(selection, pages[-1].next, 10))
    assert [len(page.reports) for page in pages] == [0, 0, 0, 0, 0, 1]


async def test_what_came_while_nobody_followed_is_not_missed(store: Reading) -> None:
    first = store.feed.follow(EVERYTHING, 0)
    assert await first.take(0.01) == []
    jobs = await store.end_jobs(2)
    assert await taken(first, 2) == jobs
    first.close()
    first.close()
    more = await store.end_jobs(3)
    second = store.feed.follow(EVERYTHING, 2)
    assert await taken(second, 3) == more


@pytest.mark.parametrize("starts", [(0, 0, 0), (0, 5, 9), (20, 3, 11)])
async def test_whoever_starts_wherever_while_reports_come_sees_each_once(
    store: Reading, starts: Sequence[int]
) -> None:
    jobs: list[str] = []
    waiting: list[asyncio.Future[list[str]]] = []
    for start in starts:
        jobs += await store.end_jobs(8)
        follower = store.feed.follow(EVERYTHING, start)
        waiting.append(asyncio.ensure_future(taken(follower, 48 - start)))
    for _ in range(6):
        jobs += await store.end_jobs(4)
    for start, seen in zip(starts, waiting, strict=True):
        assert await soon(seen) == jobs[start:]


async def test_at_a_stop_everybody_is_told(store: Reading) -> None:
    follower = store.feed.follow(EVERYTHING, 0)
    waiting = asyncio.ensure_future(follower.take(60))
    await asyncio.sleep(0)
    store.feed.stop()
    with pytest.raises(StreamInterrupted):
        await soon(waiting)
    with pytest.raises(StreamInterrupted):
        await store.feed.follow(EVERYTHING, 0).take(60)


async def test_a_consumer_that_is_deleted_or_parked_follows_no_longer(store: Reading) -> None:
    for name, error in (("deleted", ConsumerNotFound), ("parked", ConsumerParked)):
        await store.consumers.create(name, Selection(), "latest")
        _, follower = await store.consumers.follow(name, None, None)
        assert store.feed.follows(name)
        waiting = asyncio.ensure_future(follower.take(60))
        if name == "deleted":
            await store.consumers.delete(name, None)
        else:
            store.feed.end(name, ConsumerParked())
        with pytest.raises(JobServerError) as caught:
            await soon(waiting)
        assert type(caught.value) is error
        follower.close()
        assert not store.feed.follows(name)


async def test_a_consumer_follows_from_where_it_stands_or_its_reader_does(store: Reading) -> None:
    jobs = await store.end_jobs(5)
    await store.consumers.create("c", Selection(), "earliest")
    await store.consumers.ack("c", None, store.cursor(2), None)
    for seen, rest in ((None, jobs[2:]), (1, jobs[2:]), (4, jobs[4:])):
        cursor = None if seen is None else store.cursor(seen)
        _, follower = await store.consumers.follow("c", None, cursor)
        assert await taken(follower, len(rest)) == rest
        follower.close()
