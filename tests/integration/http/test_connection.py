"""Whoever connects and does not come to the point is shown out, with a word why."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from app.connection import HEAD_BYTES_MAX, Connection

READ_S = 10.0
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n"


class Impatient(Connection):
    head_s = 0.05


async def say_hello(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def connected(
    kind: type[Connection] = Connection,
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    config = uvicorn.Config(say_hello, http=kind, ws="none", lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: kind(config, state, {}), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(READ_S):
        return await reader.read()


@pytest.mark.parametrize(
    "said", [b"", b"GET", b"GET / HTTP/1.1\r\nHost:", b"\r\n\r\n"], ids=["nothing", "a", "b", "c"]
)
async def test_a_head_that_does_not_come_is_not_waited_for(said: bytes) -> None:
    async with connected(Impatient) as (reader, writer):
        writer.write(said)
        assert (await rest_of(reader)).startswith(b"HTTP/1.1 408 ")


async def test_a_second_head_that_does_not_come_is_not_waited_for() -> None:
    async with connected(Impatient) as (reader, writer):
        writer.write(REQUEST + b"\r\n")
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        writer.write(b"GET")
        assert (await rest_of(reader)).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"], ids=["open", "complete"])
@pytest.mark.parametrize("pieces", [1, 40])
async def test_a_head_that_is_too_large_is_refused(end: bytes, pieces: int) -> None:
    async with connected() as (reader, writer):
        writer.write(REQUEST + b"x-long: ")
        for _ in range(pieces):
            writer.write(b"x" * (2 * HEAD_BYTES_MAX // pieces))
        writer.write(end)
        answer = await rest_of(reader)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert b"Send less." in answer


async def test_a_head_of_usual_size_is_answered_and_the_connection_stays() -> None:
    async with connected(Impatient) as (reader, writer):
        for _ in range(2):
            writer.write(REQUEST + b"x-long: " + b"x" * 30_000 + b"\r\n\r\n")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")


async def test_what_is_no_http_is_refused_in_the_usual_shape() -> None:
    async with connected() as (reader, writer):
        writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        answer = await rest_of(reader)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b'{"error":{"message":"Invalid HTTP request received."' in answer
