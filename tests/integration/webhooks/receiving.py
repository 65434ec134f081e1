"""A receiver of webhooks on loopback, that answers as it is told to and keeps what it is sent."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

ANSWERS = {
    "ok": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "accepted": b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n",
    "error": b"HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\noops",
    "moved": b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n",
    "later": b"HTTP/1.1 503 Busy\r\nRetry-After: 1000\r\ncontent-length: 0\r\n\r\n",
    "gone": b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n",
    "nonsense": b"not HTTP at all\r\n\r\n",
    "flood": b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000,
    "endless": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nnever all of it",
}
"""``hang`` is no answer at all, ``cut`` the connection closed."""

Behaviour = Callable[["Arrival"], str]


@dataclass(frozen=True)
class Arrival:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body)


@dataclass
class Receiver:
    """``behaves`` says how to answer each; ``arrivals`` is all that came."""

    port: int = 0
    scheme: str = "http"
    behaves: Behaviour = field(default=lambda _: "ok")
    arrivals: list[Arrival] = field(default_factory=list[Arrival])
    connections: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])
    came: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/hook"

    def ids(self) -> list[str]:
        return [arrival.id for arrival in self.arrivals]

    async def received(self, count: int) -> list[Arrival]:
        """All arrivals, once they are so many."""
        async with asyncio.timeout(10), self.came:
            await self.came.wait_for(lambda: len(self.arrivals) >= count)
        return self.arrivals

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                arrival = await _read(reader)
                async with self.came:
                    self.arrivals.append(arrival)
                    self.came.notify_all()
                behaviour = self.behaves(arrival)
                if behaviour == "hang":
                    await reader.read()
                    break
                if behaviour == "cut":
                    break
                writer.write(ANSWERS[behaviour])
                await writer.drain()
                if behaviour in ("nonsense", "flood"):
                    break
        self.open.discard(writer)
        writer.close()


async def _read(reader: asyncio.StreamReader) -> Arrival:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = (line.partition(": ") for line in head[1:] if line)
    headers = {name.lower(): value for name, _, value in pairs}
    body = await reader.readexactly(int(headers["content-length"]))
    return Arrival(head[0].split()[1], headers, body)


def in_turn(*answers: str) -> Behaviour:
    """These answers, one after the other, and the last of them for ever."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


@asynccontextmanager
async def receiver(
    behaves: Behaviour | None = None, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Receiver]:
    """One that listens; with a certificate over TLS."""
    it = Receiver(scheme="https" if tls else "http")
    if behaves is not None:
        it.behaves = behaves
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0, limit=1 << 20, ssl=tls)
    it.port = server.sockets[0].getsockname()[1]
    try:
        yield it
    finally:
        server.close()
        for writer in it.open:
            writer.transport.abort()
        await server.wait_closed()
