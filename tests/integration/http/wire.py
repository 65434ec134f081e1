"""A client that is nothing but a socket, so that it can behave as badly as a test wants."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

CHAT = "/v1/chat/completions"


@dataclass
class Answer:
    """A response as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return self.json()["error"]


@dataclass
class Client:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: Answer | None = field(default=None)

    def send(
        self,
        path: str = CHAT,
        body: bytes | None = None,
        *,
        method: str | None = None,
        host: str | None = "localhost",
        headers: tuple[str, ...] = (),
    ) -> None:
        verb = method or ("GET" if body is None else "POST")
        lines = [f"{verb} {path} HTTP/1.1", *headers]
        if host is not None:
            lines.insert(1, f"Host: {host}")
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))

    async def read_head(self) -> Answer:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = [line.split(": ", 1) for line in head[1:] if line]
        self.head = Answer(
            int(head[0].split()[1]), {name.lower(): value for name, value in pairs}, b""
        )
        return self.head

    async def read_chunk(self) -> bytes:
        """One piece of a chunked body; empty at its end."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def read_until(self, wanted: bytes) -> bytes:
        """Everything up to and including ``wanted``."""
        seen = b""
        while wanted not in seen:
            piece = await self.read_chunk()
            assert piece, f"the stream ended before {wanted!r}: {seen!r}"
            seen += piece
        return seen

    async def read_body(self) -> bytes:
        assert self.head is not None
        if (length := self.head.headers.get("content-length")) is not None:
            return await self.reader.readexactly(int(length))
        pieces: list[bytes] = []
        while piece := await self.read_chunk():
            pieces.append(piece)
        return b"".join(pieces)

    async def answer(self) -> Answer:
        head = await self.read_head()
        head.body = await self.read_body()
        return head

    async def ask(self, *args: Any, **kwargs: Any) -> Answer:
        self.send(*args, **kwargs)
        return await self.answer()

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Closes with RST instead of FIN."""
        linger = struct.pack("ii", 1, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()

    def half_close(self) -> None:
        """Says that nothing more will be sent, and goes on listening, as some proxies do."""
        self.writer.write_eof()

    def stop_reading(self) -> None:
        """Leaves what arrives to pile up, first here and then at the server."""
        transport: Any = self.writer.transport
        transport.pause_reading()

    @property
    def _socket(self) -> Any:
        return self.writer.get_extra_info("socket")


@asynccontextmanager
async def connect(port: int, *, receive_bytes: int | None = None) -> AsyncGenerator[Client]:
    """A connection, with a small receive buffer if a test means not to read."""
    raw = socket.socket()
    if receive_bytes is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=raw, limit=receive_bytes or 2**20)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def ask(port: int, *args: Any, **kwargs: Any) -> Answer:
    """One request on a connection of its own."""
    async with connect(port) as client:
        return await client.ask(*args, **kwargs)


@asynccontextmanager
async def open_stream(
    port: int, *, receive_bytes: int | None = None, **fields: Any
) -> AsyncGenerator[Client]:
    """A streamed request whose status has arrived."""
    async with connect(port, receive_bytes=receive_bytes) as client:
        client.send(body=chat_body(stream=True, **fields))
        assert (await client.read_head()).status == 200
        yield client


def chat_body(**fields: Any) -> bytes:
    """A valid request, with changes; a field of ``...`` is left out."""
    body: dict[str, Any] = {
        "model": "tiny/model",
        "messages": [{"role": "user", "content": "hello"}],
        **fields,
    }
    return json.dumps({name: value for name, value in body.items() if value is not ...}).encode()


def frames(stream: bytes) -> list[str]:
    """The payloads of a stream's data lines, split as the least careful reader does."""
    return [
        line.removeprefix("data: ")
        for line in stream.decode().splitlines()
        if line.startswith("data: ")
    ]


def chunks(stream: bytes) -> list[dict[str, Any]]:
    """All objects of a stream, which must end with the one ``[DONE]`` that it holds."""
    *objects, done = frames(stream)
    assert done == "[DONE]"
    return [json.loads(payload) for payload in objects]
