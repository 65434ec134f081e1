"""Reading beside the writer: who stops in the middle leaves nothing behind."""

import asyncio

import pytest

from app.storage.readers import undisturbed


async def test_who_is_cancelled_while_it_reads_is_so_once_it_was_read() -> None:
    began, go_on, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def read() -> str:
        began.set()
        await go_on.wait()
        over.set()
        return "rows"

    reading = asyncio.ensure_future(undisturbed(read()))
    await began.wait()
    reading.cancel()
    await asyncio.sleep(0)
    assert not reading.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert over.is_set()


async def test_what_goes_wrong_in_a_read_is_told_to_who_waits_and_to_nobody_else() -> None:
    async def read() -> str:
        raise OSError("the disk")

    with pytest.raises(OSError, match="the disk"):
        await undisturbed(read())
    reading = asyncio.ensure_future(undisturbed(read()))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
