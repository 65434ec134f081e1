"""Schedules on a clock that is set, after a long absence, and when their jobs are refused."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from app.domain.errors import QueueFull
from app.domain.schedules import (
    CatchUp,
    NewSchedule,
    ScheduleChange,
    ScheduleState,
    ScheduleView,
    Template,
)
from app.product import Product
from tests.durable.assembled import assembled, draft, settings_of
from tests.durable.disturbing import let_pass
from tests.durable.order import assert_in_order
from tests.e2e.server import Site
from tests.rough.test_clock import HOUR, TENANT, SetClock, set_back_and_forth
from tests.waiting import wait_until

SECOND = timedelta(seconds=1)
HOURLY = "0 * * * *"


def asked(name: str = "s", **fields: Any) -> NewSchedule:
    """An hourly schedule of a short job."""
    template = Template(draft=draft("[[tokens=1]]"), seeded=False)
    hourly = NewSchedule(
        name=name,
        cron=HOURLY,
        every_s=None,
        timezone="Europe/Berlin",
        catch_up=CatchUp.ONE,
        paused=False,
        template=template,
    )
    return msgspec.structs.replace(hourly, **fields)


async def fired(product: Product, name: str, count: int = 1) -> ScheduleView:
    """The schedule, once it has fired so often."""
    async with asyncio.timeout(30):
        while (view := await product.schedules.get(name, TENANT)).schedule.fired < count:
            await asyncio.to_thread(wait_until, lambda: product.timetable.fired >= count, 30)
    return view


def just_before_the_hour(clock: SetClock) -> datetime:
    """Sets the clock so that the next hour is 0.3 s off; that hour."""
    now = datetime.now(UTC)
    hour = now.replace(minute=0, second=0, microsecond=0) + HOUR
    clock.off = hour - now - 0.3 * SECOND
    return hour


async def test_a_clock_that_is_set_back_and_forth_fires_no_due_twice_and_none_early(
    site: Site,
) -> None:
    clock = SetClock()
    async with assembled(settings_of(site, {}), clock=clock) as product:
        hour = just_before_the_hour(clock)
        made = (await product.schedules.create(asked())).schedule
        assert made.next_due == hour
        right = clock.off
        clock.off = right - HOUR
        view = await fired(product, "s")
        assert (view.schedule.last_due, view.schedule.next_due) == (hour, hour + HOUR)
        await set_back_and_forth(clock)
        clock.off = right
        again = (await product.schedules.change("s", TENANT, ScheduleChange(paused=False))).schedule
        assert (again.fired, again.next_due) == (1, hour + HOUR)
    assert_in_order(site.store.path)


@pytest.mark.parametrize("catch_up", CatchUp)
async def test_of_hours_that_nobody_was_there_for_the_latest_fires_or_none(
    site: Site, catch_up: CatchUp
) -> None:
    clock, settings = SetClock(), settings_of(site, {})
    async with assembled(settings, clock=clock) as product:
        made = (await product.schedules.create(asked(catch_up=catch_up))).schedule
        assert made.next_due is not None
    due = made.next_due
    clock.off = due + timedelta(hours=5, minutes=30) - datetime.now(UTC)
    async with assembled(settings, clock=clock) as product:
        if catch_up is CatchUp.ONE:
            view = await fired(product, "s")
            assert view.schedule.last_due == due + 5 * HOUR
        else:
            await asyncio.to_thread(let_pass, 0.3)
            view = await product.schedules.get("s", TENANT)
            assert (view.schedule.fired, view.schedule.last_due) == (0, None)
        assert view.schedule.next_due == due + 6 * HOUR
    assert_in_order(site.store.path)


async def test_a_due_that_is_refused_says_why_and_is_tried_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with assembled(settings_of(site, {})) as product:
        refusals = [QueueFull(), QueueFull()]
        check = product.submission._check

        def refuse(*args: Any, **kwargs: Any) -> None:
            if refusals:
                raise refusals.pop()
            check(*args, **kwargs)

        monkeypatch.setattr(product.submission, "_check", refuse)
        monkeypatch.setattr("app.domain.retry.BACKOFF_FIRST_S", 0.1)
        made = (await product.schedules.create(asked(cron=None, every_s=1.0))).schedule
        await asyncio.to_thread(wait_until, lambda: product.timetable.trouble(made.id), 10)
        view = await product.schedules.get("s", TENANT)
        assert view.trouble is None or view.trouble.code == "queue_full"
        assert (await fired(product, "s")).trouble is None
    assert_in_order(site.store.path)


async def test_what_is_paused_makes_up_for_nothing(site: Site) -> None:
    clock = SetClock()
    async with assembled(settings_of(site, {}), clock=clock) as product:
        await product.schedules.create(asked(paused=True))
        clock.off = 5 * HOUR
        view = await product.schedules.change("s", TENANT, ScheduleChange(paused=False))
        assert view.schedule.state is ScheduleState.ACTIVE
        assert view.schedule.next_due is not None
        assert view.schedule.next_due > clock.now()
        assert view.schedule.fired == 0


async def test_nothing_is_looked_at_before_the_next_due(site: Site) -> None:
    async with assembled(settings_of(site, {})) as product:
        await product.schedules.create(asked(cron="0 0 1 1 *"))
        await asyncio.to_thread(let_pass, 0.5)  # what a start looks at
        reads = product.database.readers.reads
        await asyncio.to_thread(let_pass, 0.5)
        assert product.database.readers.reads == reads
