"""The reader of many streams, a process of its own: `python -m benchmarks.queue.watching`.

Reads a `Watch`, opens every stream, says so with one line when all have begun, counts the events
that come for so long, and says that with another.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import msgspec
import uvloop
from typing_extensions import override


class Asked(msgspec.Struct, frozen=True):
    """One request whose answer is a stream."""

    method: str
    path: str
    body: str = ""


class Watch(msgspec.Struct, frozen=True):
    """What to open, and how long to count."""

    port: int
    asked: list[Asked]
    seconds: float


class Seen(msgspec.Struct, frozen=True):
    """How many events came in how many seconds."""

    events: int
    seconds: float


class Watching:
    """A reader at work."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def result(self) -> Seen:
        """Wait until it has counted."""
        assert self._process.stdout is not None
        return msgspec.json.decode(self._process.stdout.readline(), type=Seen)


@contextmanager
def watching(watch: Watch) -> Generator[Watching]:
    """Start a reader; the body begins when all streams have."""
    command = [sys.executable, "-m", "benchmarks.queue.watching"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(msgspec.json.encode(watch))
        process.stdin.close()
        process.stdout.readline()
        yield Watching(process)
    finally:
        process.kill()
        process.wait()


class _Stream(asyncio.Protocol):
    def __init__(self, asked: Asked, begun: asyncio.Event) -> None:
        self._asked = asked
        self._begun = begun
        self.events = 0

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        asked = self._asked
        head = f"{asked.method} {asked.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        if asked.body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(asked.body)}\r\n"
        transport.write((head + "\r\n" + asked.body).encode())  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - uvloop's own class

    @override
    def data_received(self, data: bytes) -> None:
        self.events += data.count(b"\ndata: ") + data.startswith(b"data: ")
        if self.events > 2:
            self._begun.set()


async def _main(watch: Watch) -> None:
    loop = asyncio.get_running_loop()
    begun = [asyncio.Event() for _ in watch.asked]
    streams = [
        (await loop.create_connection(lambda a=a, b=b: _Stream(a, b), "127.0.0.1", watch.port))[1]
        for a, b in zip(watch.asked, begun, strict=True)
    ]
    await asyncio.gather(*(event.wait() for event in begun))
    print("begun", flush=True)
    before, began = sum(stream.events for stream in streams), time.monotonic()
    await asyncio.sleep(watch.seconds)
    events, spent_s = sum(stream.events for stream in streams) - before, time.monotonic() - began
    print(msgspec.json.encode(Seen(events, spent_s)).decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(_main(msgspec.json.decode(sys.stdin.buffer.read(), type=Watch)))
