import asyncio

from app.domain.events import Output, Started
from app.streams.broadcast import Channel
from shared.messages import Text

STARTED = Started(1, 5, 0)


def output(seq: int) -> Output:
    return Output(seq, 0, (Text(str(seq)),), 1)


async def test_a_follower_that_starts_late_sees_everything_once_and_in_order() -> None:
    channel = Channel()
    channel.publish(Started(1, 5, 0))
    channel.publish(output(2))
    late = channel.follow()
    channel.publish(output(3))
    assert [event.seq for event in await late.take(0)] == [1, 2, 3]
    assert await late.take(0) == []


async def test_a_waiting_follower_is_woken_by_the_next_event() -> None:
    channel = Channel()
    follower = channel.follow()
    waiting = asyncio.ensure_future(follower.take(30))
    await asyncio.sleep(0)
    channel.publish(output(1))
    assert [event.seq for event in await waiting] == [1]


async def test_events_that_wait_together_are_taken_together() -> None:
    channel = Channel()
    follower = channel.follow()
    for seq in range(1, 101):
        channel.publish(output(seq))
    assert len(await follower.take(0)) == 100


async def test_one_event_can_be_taken_alone() -> None:
    channel = Channel()
    follower = channel.follow()
    assert await follower.take_one(0) is None
    channel.publish(output(1))
    channel.publish(output(2))
    first = await follower.take_one(0)
    assert first is not None
    assert first.seq == 1
    assert [event.seq for event in await follower.take(0)] == [2]


async def test_a_closed_follower_costs_the_channel_nothing() -> None:
    channel = Channel()
    follower = channel.follow()
    follower.close()
    follower.close()
    channel.publish(output(1))
    assert not channel._followers


async def test_a_slow_follower_does_not_hold_up_a_fast_one() -> None:
    channel = Channel()
    slow, fast = channel.follow(), channel.follow()
    for seq in range(1, 1001):
        channel.publish(output(seq))
        assert [event.seq for event in await fast.take(0)] == [seq]
    assert len(await slow.take(0)) == 1000


async def test_a_wait_lasts_its_own_time_whatever_was_waited_for_before() -> None:
    channel = Channel()
    follower = channel.follow()
    long = asyncio.ensure_future(follower.take(60.0))
    await asyncio.sleep(0)
    channel.publish(STARTED)
    assert await long == [STARTED]
    async with asyncio.timeout(5):
        assert await follower.take(0.01) == []
        assert await follower.take(0.02) == []
    follower.close()


async def test_a_timer_that_rings_for_a_wait_that_is_over_ends_no_later_one() -> None:
    channel = Channel()
    follower = channel.follow()
    short = asyncio.ensure_future(follower.take(0.02))
    await asyncio.sleep(0)
    channel.publish(STARTED)
    assert await short == [STARTED]
    began = asyncio.get_running_loop().time()
    assert await follower.take(0.1) == []
    assert asyncio.get_running_loop().time() - began >= 0.09
    follower.close()


async def test_a_follower_that_is_closed_leaves_no_timer() -> None:
    channel = Channel()
    follower = channel.follow()
    waiting = asyncio.ensure_future(follower.take(60.0))
    await asyncio.sleep(0)
    follower.close()
    assert await waiting == []
    assert follower._timer is None
