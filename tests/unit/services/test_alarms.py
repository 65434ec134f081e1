"""Many alarms on one timer."""

import asyncio

from app.services.alarms import SLACK, Alarms


async def rung(alarms: Alarms, waits: list[float]) -> list[float]:
    """Set these, and tell in which order they ring."""
    order: list[float] = []
    done = asyncio.Event()

    def ring(wait_s: float) -> None:
        order.append(wait_s)
        if len(order) == len(waits):
            done.set()

    for wait_s in waits:
        alarms.set(wait_s, lambda wait_s=wait_s: ring(wait_s))
    async with asyncio.timeout(10):
        await done.wait()
    return order


async def test_alarms_ring_in_the_order_of_their_times_whatever_they_were_set_in() -> None:
    assert await rung(Alarms(), [0.03, 0.01, 0.02, 0.0]) == [0.0, 0.01, 0.02, 0.03]


async def test_none_rings_before_its_time() -> None:
    alarms, loop = Alarms(), asyncio.get_running_loop()
    began, rang = loop.time(), loop.create_future()
    alarms.set(0.01, lambda: rang.set_result(loop.time()))
    assert await rang - began >= 0.01


async def test_one_that_was_cancelled_does_not_ring_and_others_do() -> None:
    alarms = Alarms()
    first = alarms.set(0.0, _never)
    alarms.cancel(first)
    alarms.cancel(first)
    assert await rung(alarms, [0.01]) == [0.01]
    assert len(alarms) == 0


def _never() -> None:
    raise AssertionError("it was cancelled")


async def test_one_that_is_set_while_another_rings_rings_too() -> None:
    alarms, rang = Alarms(), asyncio.get_running_loop().create_future()

    def ring() -> None:
        alarms.set(0.0, lambda: rang.set_result(None))

    alarms.set(0.0, ring)
    await rang


async def test_cancelled_alarms_take_no_room() -> None:
    alarms = Alarms()
    for _ in range(10):
        for number in [alarms.set(3_600.0, lambda: None) for _ in range(1_000)]:
            alarms.cancel(number)
    assert len(alarms) == 0
    assert alarms.waiting <= 2 * SLACK
