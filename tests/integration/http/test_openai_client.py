"""The official Python client against the server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from app.domain import errors
from tests.integration.http.doubles import FakeServices, answering, failed, said, starting
from tests.integration.http.serving import serving

MODEL = "tiny/model"
MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]},
]


@asynccontextmanager
async def client_of(services: FakeServices) -> AsyncGenerator[AsyncOpenAI]:
    async with (
        serving(services) as server,
        AsyncOpenAI(
            base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0
        ) as client,
    ):
        yield client


async def test_a_plain_completion() -> None:
    services = FakeServices(answering("Hel", "lo"))
    async with client_of(services) as client:
        got = await client.chat.completions.create(model=MODEL, messages=MESSAGES, seed=-1)
    assert got.id == "chatcmpl-00000000000000000000000000000001"
    assert got.object == "chat.completion"
    assert got.created == 1772366400
    assert got.model == MODEL
    (choice,) = got.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "stop", None)
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello")
    assert choice.message.refusal is None
    assert got.usage is not None
    assert got.usage.total_tokens == 9
    assert got.usage.prompt_tokens_details is not None
    assert got.usage.prompt_tokens_details.cached_tokens == 3
    assert got._request_id is not None
    (draft,) = services.drafts
    assert [(m.role, m.content) for m in draft.request.messages] == [
        ("system", "Be brief."),
        ("user", "hello"),
    ]
    assert draft.request.sampling.seed == 2**64 - 1


async def test_a_streamed_completion() -> None:
    async with client_of(FakeServices(answering("Hel", "lo", reason="length"))) as client:
        stream = await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello"
    assert [c.choices[0].finish_reason for c in chunks if c.choices] == [None, None, None, "length"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 2
    assert len({(c.id, c.created, c.model) for c in chunks}) == 1


async def test_the_streaming_helper_gathers_the_same_answer() -> None:
    async with (
        client_of(FakeServices(answering("Hel", "lo"))) as client,
        client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream,
    ):
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == "Hello"
    assert final.choices[0].finish_reason == "stop"


async def test_an_error_in_a_stream_is_raised() -> None:
    services = FakeServices(starting)
    async with client_of(services) as client:
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        ticket = await services.tickets.get()
        ticket.follower.push(said("Hel"), failed("worker_crashed", "worker exited (signal 9)"))
        with pytest.raises(openai.APIError, match="signal 9") as caught:
            _ = [chunk async for chunk in stream]
    assert caught.value.code == "worker_crashed"


async def test_closing_a_stream_cancels_its_job() -> None:
    services = FakeServices(starting)
    async with client_of(services) as client:
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        ticket = await services.tickets.get()
        await stream.close()
        await ticket.cancelled.wait()


@pytest.mark.parametrize(
    ("refusal", "raised"),
    [
        (errors.ModelNotFound(), openai.NotFoundError),
        (errors.QueueFull(), openai.RateLimitError),
        (errors.ShuttingDown(), openai.InternalServerError),
        (errors.PromptTooLong(), openai.BadRequestError),
    ],
)
async def test_refusals_are_the_clients_own_exceptions(
    refusal: errors.JobServerError, raised: type[openai.APIStatusError]
) -> None:
    async with client_of(FakeServices(refusal=refusal)) as client:
        with pytest.raises(raised) as caught:
            await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    assert caught.value.code == refusal.code
    assert caught.value.request_id is not None


async def test_models_are_listed_and_found_by_ids_with_slashes() -> None:
    async with client_of(FakeServices()) as client:
        listed = [model.id async for model in client.models.list()]
        one = await client.models.retrieve("tiny/model")
        with pytest.raises(openai.NotFoundError, match="tiny/model, other"):
            await client.models.retrieve("none/such")
    assert listed == ["tiny/model", "other"]
    assert (one.id, one.object, one.owned_by) == ("tiny/model", "model", "mlxq")
    assert one.to_dict()["context_length"] == 2048
