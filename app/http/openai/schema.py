"""The chat completion request, its answer and its chunks, as OpenAI's clients spell them.

Optional fields of a request may be null, which means absent. Unknown ones are ignored, so that
clients may send what other servers understand.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

MODEL_CHARS_MAX: Final = 512
INT64_MAX: Final = 2**63 - 1

Choices = Annotated[int, Meta(ge=1, le=128)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Tokens = Annotated[int, Meta(ge=1)]


class ContentPart(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a message's content; only text has a place in a text model's prompt."""

    type: str
    text: str | None = None
    refusal: str | None = None


class MessageParam(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the conversation so far."""

    role: str
    content: str | Sequence[ContentPart] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_call_id: str | None = None
    tool_calls: Any = None
    function_call: Any = None
    audio: Any = None


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream carries beside the text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatCompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation to continue with one turn of the assistant."""

    model: Annotated[str, Meta(min_length=1, max_length=MODEL_CHARS_MAX)]
    messages: list[MessageParam]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=INT64_MAX)] | None = None
    stop: str | list[str] | None = None
    # Extensions that OpenAI-compatible servers share.
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    # Accepted; they change nothing here.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: dict[str, str] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    reasoning_effort: str | None = None
    parallel_tool_calls: bool | None = None
    prediction: Any = None
    prompt_cache_options: Any = None
    prompt_cache_retention: Any = None
    # Known, and refused unless neutral: see `verdicts`.
    n: Choices | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    store: bool | None = None
    modalities: list[str] | None = None
    logit_bias: Any = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: Any = None
    audio: Any = None
    moderation: Any = None
    web_search_options: Any = None
    chat_template_kwargs: Any = None


class PromptTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What the prompt's tokens were."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What the completion's tokens were."""

    reasoning_tokens: int


class UsageBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens counted."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The assistant's turn."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: str | None = None
    reasoning_content: str | UnsetType = UNSET


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    index: int
    message: AssistantMessage
    finish_reason: Literal["stop", "length"]
    logprobs: None = None


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer of a request that did not ask for a stream."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: UsageBlock
    system_fingerprint: str | None = None
    service_tier: str | UnsetType = UNSET


class ModelObject(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be asked for."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    context_length: int | None = None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """All models that can be asked for."""

    object: Literal["list"] = "list"
    data: list[ModelObject]
