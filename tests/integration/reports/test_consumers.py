"""Consumers: a place each, moved by acknowledging, whoever asks and however often."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import JobServerError
from app.domain.feed import Consumer, Cursor, Page, Selection
from app.domain.job import Durability, JobClass
from app.domain.report_errors import (
    ConsumerExists,
    ConsumerNotFound,
    ConsumerParked,
    CursorAhead,
    CursorMoved,
    FeedEpochChanged,
)
from app.storage.consumers import ack_step, load_consumer, park_consumer
from app.storage.operations import Operation, Void
from tests.integration.reports.reading import Reading, reading
from tests.integration.storage.making import tamper

NAME = "billing"


def subjects(page: Page) -> list[str]:
    return [report.subject for report in page.reports]


async def read(store: Reading, limit: int = 100, name: str = NAME) -> Page:
    _, page = await store.consumers.page(name, None, limit)
    return page


async def create(store: Reading, start: Any = "earliest", **selection: Any) -> Consumer:
    consumer, new = await store.consumers.create(NAME, Selection(**selection), start)
    assert new
    return consumer


async def test_what_is_not_acknowledged_is_read_again_and_what_is_never(store: Reading) -> None:
    jobs = await store.end_jobs(5)
    await create(store)
    first = await read(store, limit=2)
    assert (subjects(first), first.next, first.end) == (jobs[:2], 2, False)
    assert subjects(await read(store, limit=2)) == jobs[:2]
    await store.consumers.ack(NAME, None, store.cursor(first.next), None)
    rest = await read(store)
    assert (subjects(rest), rest.next, rest.end) == (jobs[2:], 5, True)
    await store.consumers.ack(NAME, None, store.cursor(5), None)
    assert (await read(store)).reports == ()
    jobs = await store.end_jobs()
    assert subjects(await read(store)) == jobs


async def test_one_that_begins_with_the_latest_sees_what_comes_then(store: Reading) -> None:
    await store.end_jobs(3)
    consumer = await create(store, "latest")
    assert consumer.acked == 3
    jobs = await store.end_jobs(2)
    assert subjects(await read(store)) == jobs


async def test_a_page_ends_behind_what_the_reader_is_not_shown(store: Reading) -> None:
    attached: Any = {"durability": Durability.ATTACHED, "request": None}
    await store.end_jobs(2, **attached)
    shown = await store.end_jobs(1)
    await store.end_jobs(2, job_class=JobClass.BATCH)
    await create(store)
    page = await read(store)
    assert (subjects(page), page.next, page.end) == (shown, 5, True)
    page = await read(store, limit=1)
    assert (subjects(page), page.next) == (shown, 5)


async def test_a_tenants_consumer_sees_its_own_jobs_only(store: Reading) -> None:
    mine = await store.end_jobs(1, tenant="acme")
    await store.end_jobs(1, tenant="other")
    await store.end_a_drain()
    await create(store, tenant="acme")
    assert subjects(await read(store)) == mine
    everything, _ = await store.consumers.create("all", Selection(), "earliest")
    assert len((await read(store, name=everything.name)).reports) == 3


async def test_a_consumer_is_not_there_for_another_tenant(store: Reading) -> None:
    await create(store, tenant="acme")
    assert (await store.consumers.get(NAME, "acme")).name == NAME
    assert (await store.consumers.get(NAME, None)).name == NAME
    for asked in (
        store.consumers.get(NAME, "other"),
        store.consumers.page(NAME, "other", 1),
        store.consumers.ack(NAME, "other", store.cursor(0), None),
        store.consumers.delete(NAME, "other"),
        store.consumers.follow(NAME, "other", None),
    ):
        with pytest.raises(ConsumerNotFound):
            await asked
    assert [c.name for c in await store.consumers.list("acme")] == [NAME]
    assert await store.consumers.list("other") == []


async def test_the_servers_own_consumers_are_not_seen_from_outside(store: Reading) -> None:
    await store.consumers.create("webhook:1", Selection(), "latest")
    assert await store.consumers.list(None) == []
    with pytest.raises(ConsumerNotFound):
        await store.consumers.delete("webhook:1", None)


async def test_to_create_it_twice_is_to_create_it_once(store: Reading) -> None:
    await store.end_jobs(2)
    await create(store, tags={"team": "a"})
    await store.consumers.ack(NAME, None, store.cursor(2), None)
    again, new = await store.consumers.create(NAME, Selection(tags={"team": "a"}), "earliest")
    assert (again.acked, new) == (2, False)
    with pytest.raises(ConsumerExists):
        await store.consumers.create(NAME, Selection(), "earliest")


@pytest.mark.parametrize(
    ("through", "expected", "error"),
    [
        (4, None, CursorAhead),
        (2**60, None, CursorAhead),
        (4, 0, CursorAhead),
        (3, 1, CursorMoved),
        (0, 1, None),
        (2, 0, None),
        (3, 0, None),
        (3, None, None),
    ],
)
async def test_a_place_is_moved_within_the_feed_and_from_where_it_stands(
    store: Reading, through: int, expected: int | None, error: type[JobServerError] | None
) -> None:
    await store.end_jobs(3)
    await create(store)
    from_ = None if expected is None else store.cursor(expected)
    acknowledging = store.consumers.ack(NAME, None, store.cursor(through), from_)
    if error is None:
        assert (await acknowledging).acked == through
        return
    with pytest.raises(error):
        await acknowledging
    assert (await store.consumers.get(NAME, None)).acked == 0


async def test_an_acknowledgement_whose_answer_was_lost_is_repeated_without_harm(
    store: Reading,
) -> None:
    await store.end_jobs(3)
    await create(store)
    for _ in range(2):
        found = await store.consumers.ack(NAME, None, store.cursor(2), store.cursor(0))
        assert found.acked == 2
    assert (await store.consumers.ack(NAME, None, store.cursor(1), None)).acked == 2


async def test_of_two_who_acknowledge_from_one_place_one_is_told_where_it_stands(
    store: Reading,
) -> None:
    await store.end_jobs(3)
    await create(store)
    results = await asyncio.gather(
        store.consumers.ack(NAME, None, store.cursor(2), store.cursor(0)),
        store.consumers.ack(NAME, None, store.cursor(3), store.cursor(0)),
        return_exceptions=True,
    )
    (moved,) = [result for result in results if isinstance(result, CursorMoved)]
    (found,) = [result for result in results if isinstance(result, Consumer)]
    assert moved.place == store.cursor(found.acked)


async def test_a_cursor_of_another_epoch_is_refused(store: Reading) -> None:
    await store.end_jobs(3)
    await create(store)
    other = Cursor("other", 1)
    for through, expected in ((other, None), (store.cursor(1), other)):
        with pytest.raises(FeedEpochChanged) as caught:
            await store.consumers.ack(NAME, None, through, expected)
        assert store.epoch in caught.value.message
    with pytest.raises(FeedEpochChanged):
        await store.consumers.follow(NAME, None, other)


async def test_a_parked_consumer_is_told_what_is_left_and_begins_anew(store: Reading) -> None:
    await store.end_jobs(3)
    consumer = await create(store)
    await store.write(park_consumer(consumer, "a test"))
    for asked in (
        store.consumers.page(NAME, None, 1),
        store.consumers.ack(NAME, None, store.cursor(1), None),
        store.consumers.follow(NAME, None, None),
    ):
        with pytest.raises(ConsumerParked, match="a test") as caught:
            await asked
        assert caught.value.place == store.cursor(1)
    again, new = await store.consumers.create(NAME, Selection(), "latest")
    assert (again.acked, again.parked_reason, new) == (3, None, True)


async def test_a_deleted_consumer_is_gone(store: Reading) -> None:
    await create(store)
    await store.consumers.delete(NAME, None)
    for asked in (store.consumers.get(NAME, None), store.consumers.delete(NAME, None)):
        with pytest.raises(ConsumerNotFound):
            await asked
    await create(store, "latest")


async def test_a_place_outlives_the_process(tmp_path: Path) -> None:
    async with reading(tmp_path / "data") as store:
        jobs = await store.end_jobs(3)
        await create(store, tags={"a": "b"}, classes=(JobClass.BATCH,), include_attached=True)
        await store.consumers.ack(NAME, None, store.cursor(1), None)
        before, epoch = await store.consumers.get(NAME, None), store.epoch
    async with reading(tmp_path / "data") as store:
        assert await store.consumers.get(NAME, None) == before
        assert store.epoch == epoch
        all_, _ = await store.consumers.create("all", Selection(), "earliest")
        assert subjects(await read(store, name=all_.name)) == jobs


async def test_a_damaged_report_holds_up_nobody(tmp_path: Path) -> None:
    async with reading(tmp_path / "data") as store:
        jobs = await store.end_jobs(3)
    tamper(tmp_path / "data", "DROP TRIGGER report_is_immutable")
    tamper(tmp_path / "data", "UPDATE report SET payload = x'7b7d' WHERE seq = 2")
    async with reading(tmp_path / "data") as store:
        await create(store)
        page = await read(store)
        assert subjects(page) == jobs
        assert [report.payload is None for report in page.reports] == [False, True, False]
        await store.consumers.create("acme", Selection(tenant="default"), "earliest")
        assert subjects(await read(store, name="acme")) == [jobs[0], jobs[2]]


async def test_an_effect_inside_the_server_and_its_acknowledgement_are_one(store: Reading) -> None:
    """What consumers inside the process rest on."""
    await store.end_jobs(2)
    await store.consumers.create("own:1", Selection(), "earliest")

    def act(through: int, expected: int) -> Operation:
        step = ack_step("own:1", through, store.clock.now(), expected)
        return Operation(name="act", subjects=("consumer/own:1",), steps=(step,))

    await store.write(act(2, 0))
    assert await store.database.writer.submit(act(2, 0)) == Void("consumer.ack", "own:1")
    found = await load_consumer(store.database.readers, "own:1")
    assert found is not None
    assert (found.acked, found.internal) == (2, True)
