"""The measuring client: a process of its own, sharing no event loop with what it measures.

`python -m benchmarks.serving.client` reads a `ClientRun` as JSON on standard input and writes a
`ClientResult` on standard output. A request is timed from when it is written to a connection that
is open already; an event, when its bytes were read. httptools takes the responses apart, as they
may be chunked (HTTP/1.1) or end with the connection (HTTP/1.0).
"""

import asyncio
import gc
import sys
import time
from typing import Any, Final

import httptools
import msgspec
from typing_extensions import override

from benchmarks.serving.workload import Chat, Load, Trace

_OK: Final = 200
_ERROR_CHARS_MAX: Final = 500


class ClientRun(msgspec.Struct, frozen=True):
    """Where to ask, what, and for how long at most."""

    host: str
    port: int
    model: str
    load: Load
    chats: list[list[Chat]]
    timeout_s: float


class ClientResult(msgspec.Struct, frozen=True):
    """What became of every request, and the processor time that asking took."""

    traces: list[Trace]
    cpu_s: float


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: dict[str, int] | None = None


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = msgspec.field(default_factory=list[_Choice])
    usage: _Usage | None = None
    error: Any = None


_CHUNK: Final = msgspec.json.Decoder(_Chunk)


class _Exchange(asyncio.Protocol):
    """One request and its streamed response. ``done`` is set when the response has ended."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.done = asyncio.Event()
        self._parser = httptools.HttpResponseParser(self)
        self._rest = b""
        self._saw_end = False
        self._now = 0.0

    # --- asyncio --------------------------------------------------------------------------------

    @override
    def data_received(self, data: bytes) -> None:
        self._now = time.perf_counter()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, msgspec.MsgspecError) as error:
            self._fail(f"not understood: {error}")

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if not self._saw_end:
            self._fail(f"the stream was cut: {exc or 'closed by the server'} {self._rest!r}")
        self.done.set()

    # --- httptools ------------------------------------------------------------------------------

    def on_body(self, body: bytes) -> None:
        """A piece of the body: whole events are taken, the rest waits."""
        *blocks, self._rest = (self._rest + body).split(b"\n\n")
        status = self._parser.get_status_code()
        if status != _OK:
            self._rest = b"\n\n".join([*blocks, self._rest])
            self._fail(f"{status} {self._rest!r}")
            return
        for block in blocks:
            if block.startswith(b"data: "):
                self._event(block.removeprefix(b"data: "))

    def on_message_complete(self) -> None:
        """The response has ended as its headers announced."""
        self.done.set()

    def _event(self, data: bytes) -> None:
        trace = self.trace
        if data == b"[DONE]":
            self._saw_end = True
            return
        chunk = _CHUNK.decode(data)
        if chunk.error is not None:
            self._fail(f"in band: {chunk.error}")
        for choice in chunk.choices:
            if choice.delta is not None and choice.delta.content:
                trace.events.append(self._now)
                trace.text += choice.delta.content
        if (usage := chunk.usage) is not None:
            trace.prompt_tokens = usage.prompt_tokens
            trace.completion_tokens = usage.completion_tokens
            trace.cached_tokens = (usage.prompt_tokens_details or {}).get("cached_tokens", 0)

    def _fail(self, reason: str) -> None:
        self._saw_end = True
        self.trace.error = reason[:_ERROR_CHARS_MAX]


async def _ask(run: ClientRun, chat: Chat) -> Trace:
    loop = asyncio.get_running_loop()
    request = _request(run, chat)
    transport, exchange = await loop.create_connection(_Exchange, run.host, run.port)
    exchange.trace.sent = time.perf_counter()
    transport.write(request)
    try:
        await asyncio.wait_for(exchange.done.wait(), run.timeout_s)
    except TimeoutError:
        exchange.trace.error = f"no end within {run.timeout_s:.0f} s"
    finally:
        transport.close()
    return exchange.trace


def _request(run: ClientRun, chat: Chat) -> bytes:
    body = msgspec.json.encode(
        {
            "model": run.model,
            "messages": chat.messages(),
            "max_tokens": run.load.tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {run.host}:{run.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


async def _stream(run: ClientRun, chats: list[Chat]) -> list[Trace]:
    return [await _ask(run, chat) for chat in chats]


async def _all(run: ClientRun) -> list[Trace]:
    traces = await asyncio.gather(*(_stream(run, chats) for chats in run.chats))
    return [trace for stream in traces for trace in stream]


def main() -> None:
    """Do what standard input says."""
    run = msgspec.json.decode(sys.stdin.buffer.read(), type=ClientRun)
    gc.disable()
    traces = asyncio.run(_all(run))
    result = ClientResult(traces, time.process_time())
    sys.stdout.buffer.write(msgspec.json.encode(result))


if __name__ == "__main__":
    main()
