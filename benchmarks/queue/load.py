"""The client, a process of its own: `python -m benchmarks.queue.load` reads a `Run` and answers.

Connections are kept open; each asks again as soon as it was answered, or, with a ``rate``, when its
turn comes. A response is read only as far as its length and status.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec
import uvloop
from typing_extensions import override

TIMEOUT_S: Final = 300.0


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask: ``body`` again and again over ``connections``, for ``seconds`` or ``count``
    times; ``rate`` is in requests a second over all, 0 as fast as it goes."""

    port: int
    path: str
    body: str
    connections: int
    seconds: float = 0.0
    count: int = 0
    rate: float = 0.0


class Load(msgspec.Struct, frozen=True):
    """What came: ``began`` and ``ended`` on the system's monotonic clock, latencies in seconds,
    ``sent`` the moment of each request, ``bodies`` the first answers (only with ``count``)."""

    began: float
    ended: float
    latencies: list[float]
    sent: list[float]
    refused: int
    bodies: list[str]


def ask(run: Run) -> Load:
    """Run the client and wait for it."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.queue.load"],
        input=msgspec.json.encode(run),
        stdout=subprocess.PIPE,
        check=True,
        timeout=TIMEOUT_S,
    )
    return msgspec.json.decode(done.stdout, type=Load)


class _Asked:
    """What the connections of one run share."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.request = _request(run)
        self.latencies: list[float] = []
        self.sent: list[float] = []
        self.bodies: list[str] = []
        self.refused = 0
        self.given = 0
        self.open = 0
        self.stop_at = time.monotonic() + run.seconds if run.seconds else float("inf")
        self.done = asyncio.get_running_loop().create_future()

    def may_ask(self, now: float) -> bool:
        """Whether another request is wanted."""
        wanted = now < self.stop_at and (not self.run.count or self.given < self.run.count)
        self.given += wanted
        return wanted

    def closed(self) -> None:
        """A connection has no more to ask."""
        self.open -= 1
        if self.open == 0 and not self.done.done():
            self.done.set_result(None)


class _Connection(asyncio.Protocol):
    def __init__(self, asked: _Asked) -> None:
        self._asked = asked
        self._received = b""
        self._began = 0.0
        self._write: Callable[[bytes], None]

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._write = transport.write  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - uvloop's own class
        self._asked.open += 1

    def ask(self) -> None:
        """Send the next request, or be done."""
        now = time.monotonic()
        if not self._asked.may_ask(now):
            self._asked.closed()
            return
        self._began = now
        self._write(self._asked.request)

    @override
    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, rest = self._received.partition(b"\r\n\r\n")
        if not separator or len(rest) < _length(head):
            return
        asked, self._received = self._asked, b""
        asked.latencies.append(time.monotonic() - self._began)
        asked.sent.append(self._began)
        asked.refused += not head.startswith(b"HTTP/1.1 20")
        if asked.run.count:
            asked.bodies.append(rest.decode())
        if not asked.run.rate:
            self.ask()


async def _main(run: Run) -> Load:
    loop, asked = asyncio.get_running_loop(), _Asked(run)
    connections = [
        (await loop.create_connection(lambda: _Connection(asked), "127.0.0.1", run.port))[1]
        for _ in range(run.connections)
    ]
    began = time.monotonic()
    if run.rate:
        await _at_rate(run, connections)
    else:
        for connection in connections:
            connection.ask()
        await asked.done
    ended = time.monotonic()
    return Load(began, ended, asked.latencies, asked.sent, asked.refused, asked.bodies)


async def _at_rate(run: Run, connections: list[_Connection]) -> None:
    """Each connection in turn; a request that is not answered in time delays only its own."""
    began = time.monotonic()
    for number in range(run.count):
        await asyncio.sleep(max(0.0, began + number / run.rate - time.monotonic()))
        connections[number % len(connections)].ask()
    await asyncio.sleep(1.0)


def _request(run: Run) -> bytes:
    body = run.body.encode()
    head = (
        f"POST {run.path} HTTP/1.1\r\nHost: 127.0.0.1:{run.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _length(head: bytes) -> int:
    _, _, rest = head.lower().partition(b"content-length:")
    return int(rest.split(b"\r\n", 1)[0])


def main() -> None:
    """Read a run, make it, write what came."""
    run = msgspec.json.decode(sys.stdin.buffer.read(), type=Run)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(_main(run))))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
