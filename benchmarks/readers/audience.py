"""Readers of the feed and receivers of webhooks, in a process of their own.

`python -m benchmarks.readers.audience` reads an `Audience`, registers its endpoints, says `there`
with one line when every reader has begun, and says what it was told when its input ends.
"""

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress

import msgspec

from benchmarks.readers.asking import ask

_TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"
TYPES = ["job.completed", "job.failed", "job.cancelled"]


class Audience(msgspec.Struct, frozen=True):
    """How many read the stream of reports, and are sent them; of the latter some never answer."""

    port: int
    readers: int
    endpoints: int
    hanging: int


class Told(msgspec.Struct, frozen=True):
    """How many reports all readers were shown, and how many all endpoints took."""

    read: int
    taken: int


class Listening:
    """An audience at work."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def told(self) -> Told:
        """What it was told; it leaves."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        return msgspec.json.decode(self._process.stdout.readline(), type=Told)


@contextmanager
def listening(audience: Audience) -> Generator[Listening]:
    """Have it there."""
    command = [sys.executable, "-m", "benchmarks.readers.audience"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(msgspec.json.encode(audience) + b"\n")
        process.stdin.flush()
        if process.stdout.readline() != b"there\n":
            raise RuntimeError("the audience did not come")
        yield Listening(process)
    finally:
        process.kill()
        process.wait()


class _Here:
    def __init__(self, audience: Audience) -> None:
        self._audience = audience
        self.read = self.taken = 0
        self._open: list[asyncio.StreamWriter] = []

    async def come(self) -> list[str]:
        """Register, and begin to read; the ids of the endpoints."""
        server = await asyncio.start_server(self._receive, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        about = self._audience
        made: list[str] = []
        for number in range(about.endpoints):
            kind = "hang" if number < about.hanging else "take"
            body = {"name": kind, "url": f"http://127.0.0.1:{port}/{kind}", "event_types": TYPES}
            answer = await ask(about.port, "POST", "/v1/webhook_endpoints", body)
            made.append(str(answer["id"]))
        begun = [asyncio.Event() for _ in range(about.readers)]
        self.reading = [asyncio.ensure_future(self._follow(event)) for event in begun]
        await asyncio.gather(*(event.wait() for event in begun))
        return made

    async def leave(self, endpoints: list[str]) -> None:
        for endpoint in endpoints:
            await ask(self._audience.port, "DELETE", f"/v1/webhook_endpoints/{endpoint}")
        for reading in self.reading:
            reading.cancel()

    async def _follow(self, begun: asyncio.Event) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._audience.port)
        writer.write(b"GET /v1/reports/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        while data := await reader.read(65_536):
            begun.set()
            self.read += data.count(b"event: report\n")

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
                await reader.readexactly(int(length))
                if head.startswith(b"POST /hang"):
                    await reader.read()
                    break
                self.taken += 1
                writer.write(_TAKEN)
        writer.close()


async def _main() -> None:
    line = await asyncio.to_thread(sys.stdin.buffer.readline)
    here = _Here(msgspec.json.decode(line, type=Audience))
    endpoints = await here.come()
    print("there", flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    told = Told(here.read, here.taken)
    await here.leave(endpoints)
    print(msgspec.json.encode(told).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
