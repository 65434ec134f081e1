"""One request with a JSON answer, and streams whose events are timed."""

import asyncio
import time
from typing import Any, Final

import msgspec

REFUSED_FROM: Final = 300


async def ask(port: int, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """The answer's JSON, on a connection of its own.

    Raises:
        RuntimeError: it is a refusal.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_request(method, path, body))
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = int(head.lower().partition("content-length: ")[2].partition("\r")[0])
    content = await reader.readexactly(length)
    writer.close()
    if int(head.split()[1]) >= REFUSED_FROM:
        raise RuntimeError(f"{method} {path}: {content.decode()}")
    return msgspec.json.decode(content)


async def stream(port: int, body: Any) -> list[float]:
    """Ask for a streamed answer; when each piece of it came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_request("POST", "/v1/chat/completions", {**body, "stream": True}))
    came: list[float] = []
    while data := await reader.read(65_536):
        came += [time.perf_counter()] * data.count(b"data: ")
        if b"data: [DONE]" in data:
            break
    writer.close()
    return came


def _request(method: str, path: str, body: Any) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    content = b"" if body is None else msgspec.json.encode(body)
    if content:
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return (head + "\r\n").encode() + content
