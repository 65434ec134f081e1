"""The context that ends with its connection: what it interrupts, and what it leaves alone."""

import asyncio
from typing import Any

import pytest
from litestar import Request
from litestar.exceptions import HTTPException

from app.domain.errors import RequestTooLarge
from app.http.body import read_body
from app.http.disconnect import ClientGone, Connection
from app.http.stall import StallTimer


class Line:
    """What an ASGI server would say next; silent when nothing is left."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages = list(messages)
        self.hung_up = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self.messages:
            return self.messages.pop(0)
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    def request(self, *headers: tuple[bytes, bytes]) -> Request[Any, Any, Any]:
        scope: Any = {"type": "http", "headers": list(headers)}
        receive: Any = self.receive
        return Request(scope, receive)


def piece(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_that_is_done_in_time_is_not_disturbed() -> None:
    line = Line()
    async with Connection(line.receive) as connection:
        await asyncio.sleep(0)
    line.hung_up.set()
    await asyncio.sleep(0)
    assert not connection.gone


async def test_hanging_up_interrupts_whatever_is_waited_for() -> None:
    line = Line(piece(b""))
    connection = Connection(line.receive)

    async def handler() -> None:
        async with connection:
            line.hung_up.set()
            await asyncio.Event().wait()

    with pytest.raises(ClientGone):
        await handler()
    assert connection.gone
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_from_elsewhere_passes_through() -> None:
    inside = asyncio.Event()

    async def handler() -> None:
        async with Connection(Line().receive):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(handler())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_the_body_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with Connection(Line().receive):
            raise KeyError


async def test_a_body_in_pieces_is_joined() -> None:
    line = Line(piece(b"a", more=True), piece(b"b", more=True), piece(b""))
    assert await read_body(line.request(), 2) == b"ab"


async def test_a_body_ends_with_its_connection() -> None:
    line = Line(piece(b"a", more=True))
    line.hung_up.set()
    with pytest.raises(ClientGone):
        await read_body(line.request(), 10)


async def test_a_body_that_stops_coming_is_not_waited_for() -> None:
    line = Line(piece(b"a", more=True))
    with pytest.raises(HTTPException) as caught:
        await read_body(line.request(), 10, silence_s=0)
    assert caught.value.status_code == 408


@pytest.mark.parametrize("length", [b"11", b"9" * 400])
async def test_a_length_over_the_limit_is_enough_to_refuse(length: bytes) -> None:
    with pytest.raises(RequestTooLarge, match="10 bytes"):
        await read_body(Line().request((b"content-length", length)), 10)


async def test_a_write_that_never_ends_is_a_stall() -> None:
    stalled = asyncio.Event()
    with StallTimer(0.001, stalled.set) as timer:
        timer.writing = True
        await stalled.wait()


async def test_writes_that_go_on_and_silence_are_no_stall() -> None:
    looks = asyncio.Semaphore(0)

    class Watched(StallTimer):
        def _look(self) -> None:  # pyright: ignore[reportImplicitOverride]
            super()._look()
            looks.release()

    with Watched(0.001, lambda: pytest.fail("that was no stall")) as timer:
        for writing in (False, True, True, False, True):
            timer.writing = writing
            timer.writes += 1
            await looks.acquire()
