"""From the bytes of a chat request to a draft of a job.

The body is decoded here and not by the framework, so that every error names its field the way
OpenAI's does and says what would be right. The content type is not looked at: clients forget it.
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import msgspec

from app.domain.draft import JobDraft
from app.domain.errors import InvalidRequest, StringTooLong
from app.http.explaining import (
    NOT_AN_OBJECT,
    UNDECODABLE,
    about_the_whole,
    explained,
    malformed,
)
from app.http.openai.conversation import conversation
from app.http.openai.schema import MODEL_CHARS_MAX, ChatCompletionRequest
from app.http.openai.verdicts import ignored_no_ops, refuse_unsupported
from shared.limits import SEED_MAX, STOP_STRING_CHARS_MAX, STOP_STRINGS_MAX
from shared.requests import ChatRequest
from shared.sampling import SamplingParams

_T = TypeVar("_T")

SURFACE: Final = "chat"

METADATA_PAIRS_MAX: Final = 16
METADATA_KEY_CHARS_MAX: Final = 64
METADATA_VALUE_CHARS_MAX: Final = 512
CACHE_KEY_CHARS_MAX: Final = 64
COUNT_MAX: Final = 2**31 - 1
"""Larger token counts mean "as many as there are" and are cut to this."""

EXPECTED: Final = {
    "model": f"a string of 1 to {MODEL_CHARS_MAX} characters",
    "messages": "an array of messages",
    "max_tokens": "an integer of at least 1",
    "max_completion_tokens": "an integer of at least 1",
    "temperature": "a number from 0 to 2",
    "top_p": "a number above 0 and up to 1",
    "top_k": "an integer of at least 1, or 0 for off",
    "min_p": "a number from 0 to 1",
    "seed": "a 64-bit signed integer",
    "stop": f"a string, or an array of up to {STOP_STRINGS_MAX} strings",
    "stream": "a boolean",
    "stream_options": "an object",
    "n": "an integer from 1 to 128",
    "top_logprobs": "an integer from 0 to 20",
    "frequency_penalty": "a number from -2 to 2",
    "presence_penalty": "a number from -2 to 2",
    "repetition_penalty": "a number above 0",
    "metadata": f"an object of up to {METADATA_PAIRS_MAX} strings",
    "service_tier": "one of auto, default, flex, scale, priority, fast",
    "verbosity": "one of low, medium, high",
}
"""What each field may be, for the person who sent something else."""

_KNOWN: Final = frozenset(ChatCompletionRequest.__struct_fields__)
_DECODER: Final = msgspec.json.Decoder(ChatCompletionRequest)
_NAMES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class DecodedChat(msgspec.Struct, frozen=True):
    """A request that can be served, and the names of its fields that were ignored."""

    request: ChatCompletionRequest
    ignored: list[str]


def decode_chat(body: bytes) -> DecodedChat:
    """The request in a body.

    Raises:
        InvalidRequest: one of its kinds, naming the field where there is one.
    """
    unknown = [name for name in _field_names(body) if name not in _KNOWN]
    try:
        request = _DECODER.decode(body)
    except msgspec.ValidationError as error:
        raise explained(error, EXPECTED.get) from None
    except UNDECODABLE as error:
        raise malformed(body, error) from None
    refuse_unsupported(request)
    return DecodedChat(request, unknown + ignored_no_ops(request))


def to_draft(request: ChatCompletionRequest, draw_seed: Callable[[], int]) -> JobDraft:
    """The job that this request asks for.

    ``draw_seed`` gives a seed below 2**64 for requests that name none.

    Raises:
        InvalidRequest: when fields contradict each other or a list is out of its bounds.
    """
    _check_options(request)
    _check_metadata(request)
    chat = ChatRequest(
        messages=conversation(request.messages),
        sampling=sampling_params(request, draw_seed),
        max_tokens=_max_tokens(request),
        stop=stop_strings(request.stop),
    )
    return JobDraft(surface=SURFACE, model=request.model, request=chat)


def _field_names(body: bytes) -> list[str]:
    try:
        return list(_NAMES.decode(body))
    except msgspec.ValidationError as error:
        if about_the_whole(error):
            raise InvalidRequest(NOT_AN_OBJECT) from None
        raise malformed(body, error) from None
    except UNDECODABLE as error:
        raise malformed(body, error) from None


class Sampled(Protocol):
    """A request's sampling fields; None where nothing was said."""

    @property
    def seed(self) -> int | None: ...
    @property
    def temperature(self) -> float | None: ...
    @property
    def top_p(self) -> float | None: ...
    @property
    def top_k(self) -> int | None: ...
    @property
    def min_p(self) -> float | None: ...


def sampling_params(request: Sampled, draw_seed: Callable[[], int]) -> SamplingParams:
    """How tokens are drawn, with the defaults for what was not said."""
    seed = draw_seed() if request.seed is None else request.seed & SEED_MAX
    return SamplingParams(
        seed=seed,
        temperature=_default(request.temperature, 1.0),
        top_p=_default(request.top_p, 1.0),
        top_k=min(max(_default(request.top_k, 0), 0), COUNT_MAX),
        min_p=_default(request.min_p, 0.0),
    )


def _default(value: _T | None, default: _T) -> _T:
    return default if value is None else value


def _max_tokens(request: ChatCompletionRequest) -> int | None:
    newer, older = request.max_completion_tokens, request.max_tokens
    if newer is not None and older is not None and newer != older:
        text = "'max_tokens' and 'max_completion_tokens' are both given and differ; send one."
        raise InvalidRequest(text, param="max_tokens")
    value = older if newer is None else newer
    return None if value is None else min(value, COUNT_MAX)


def stop_strings(stop: str | list[str] | None) -> tuple[str, ...]:
    """What ends a completion.

    Raises:
        InvalidRequest: too many, an empty one, or one that is too long.
    """
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(strings) > STOP_STRINGS_MAX:
        raise InvalidRequest(f"Invalid 'stop': it must be {EXPECTED['stop']}.", param="stop")
    if "" in strings:
        raise InvalidRequest("Invalid 'stop': an empty string cannot be stopped at.", param="stop")
    if any(len(string) > STOP_STRING_CHARS_MAX for string in strings):
        text = f"Invalid 'stop': a string is longer than {STOP_STRING_CHARS_MAX} characters."
        raise StringTooLong(text, param="stop")
    return strings


def _check_options(request: ChatCompletionRequest) -> None:
    if request.stream_options is not None and not request.stream:
        text = "'stream_options' is only allowed when 'stream' is true."
        raise InvalidRequest(text, param="stream_options")
    if len(request.prompt_cache_key or "") > CACHE_KEY_CHARS_MAX:
        text = f"'prompt_cache_key' is longer than {CACHE_KEY_CHARS_MAX} characters."
        raise StringTooLong(text, param="prompt_cache_key")


def _check_metadata(request: ChatCompletionRequest) -> None:
    metadata = request.metadata or {}
    if len(metadata) > METADATA_PAIRS_MAX:
        text = f"'metadata' holds {len(metadata)} pairs; at most {METADATA_PAIRS_MAX} are allowed."
        raise InvalidRequest(text, param="metadata")
    if any(len(key) > METADATA_KEY_CHARS_MAX for key in metadata):
        text = f"A key of 'metadata' is longer than {METADATA_KEY_CHARS_MAX} characters."
        raise StringTooLong(text, param="metadata")
    if any(len(value) > METADATA_VALUE_CHARS_MAX for value in metadata.values()):
        text = f"A value of 'metadata' is longer than {METADATA_VALUE_CHARS_MAX} characters."
        raise StringTooLong(text, param="metadata")
