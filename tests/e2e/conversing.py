"""Asking a server through OpenAI's own client, whole and as a stream."""

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI, AsyncStream, OpenAI, Stream
from openai.types.chat import ChatCompletionChunk
from openai.types.completion_usage import CompletionUsage

from tests.e2e.server import RunningServer

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Said:
    """What came back, in whichever way."""

    text: str
    finish: str | None
    usage: CompletionUsage | None
    id: str = ""

    @property
    def tokens(self) -> tuple[int, int]:
        """Prompt and completion."""
        assert self.usage is not None
        assert self.usage.total_tokens == self.usage.prompt_tokens + self.usage.completion_tokens
        return self.usage.prompt_tokens, self.usage.completion_tokens

    @property
    def all_but_id(self) -> tuple[str, str | None, tuple[int, int]]:
        return self.text, self.finish, self.tokens


@contextmanager
def client_of(server: RunningServer) -> Generator[OpenAI]:
    with OpenAI(
        base_url=f"{server.base}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_S
    ) as client:
        yield client


@asynccontextmanager
async def async_client_of(server: RunningServer) -> AsyncGenerator[AsyncOpenAI]:
    async with AsyncOpenAI(
        base_url=f"{server.base}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_S
    ) as client:
        yield client


def ask(server: RunningServer, content: str, **fields: Any) -> Said:
    """A plain request."""
    with client_of(server) as client:
        got = client.chat.completions.create(**_request(server, content, fields), stream=False)
    (choice,) = got.choices
    return Said(choice.message.content or "", choice.finish_reason, got.usage, got.id)


def ask_for_stream(server: RunningServer, content: str, **fields: Any) -> Said:
    """The same as a stream that says its usage."""
    with client_of(server) as client:
        stream: Stream[ChatCompletionChunk] = client.chat.completions.create(
            **_request(server, content, fields),
            stream=True,
            stream_options={"include_usage": True},
        )
        return _joined(list(stream))


async def ask_at_once(
    server: RunningServer, requests: Sequence[tuple[str, dict[str, Any]]]
) -> list[Said]:
    """Streams of all these, at the same time."""
    async with async_client_of(server) as client:

        async def one(content: str, fields: dict[str, Any]) -> Said:
            stream: AsyncStream[ChatCompletionChunk] = await client.chat.completions.create(
                **_request(server, content, fields),
                stream=True,
                stream_options={"include_usage": True},
            )
            return _joined([chunk async for chunk in stream])

        return await asyncio.gather(*(one(content, fields) for content, fields in requests))


def _request(server: RunningServer, content: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {**server.body(content), **fields}


def _joined(chunks: list[ChatCompletionChunk]) -> Said:
    choices = [choice for chunk in chunks for choice in chunk.choices]
    finishes = [choice.finish_reason for choice in choices if choice.finish_reason]
    assert len(finishes) == 1
    usages = [chunk.usage for chunk in chunks if chunk.usage is not None]
    (answer_id,) = {chunk.id for chunk in chunks}
    text = "".join(choice.delta.content or "" for choice in choices)
    return Said(text, finishes[0], usages[-1] if usages else None, answer_id)
