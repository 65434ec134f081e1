"""Fields of a chat request that this server knows, and does not act on.

Some are refused unless they ask for nothing: answering as if they were not there would be a lie.
Others change nothing in what comes back and are ignored, by name.
"""

from collections.abc import Callable
from typing import Any, Final

from app.domain.errors import InvalidRequest, UnsupportedParameter
from app.http.openai.schema import ChatCompletionRequest

ENDPOINT: Final = "/v1/chat/completions"

NO_OPS: Final = (
    "prediction",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "verbosity",
)


def _empty(value: Any) -> bool:
    return value in ([], {})


def _is(*neutral: Any) -> Callable[[Any], bool]:
    return lambda value: value in neutral


def _text_format(value: Any) -> bool:
    return isinstance(value, dict) and value == {"type": "text"}


NEUTRAL: Final[dict[str, Callable[[Any], bool]]] = {
    "n": _is(1),
    "logprobs": _is(False),
    "top_logprobs": _is(0),
    "frequency_penalty": _is(0),
    "presence_penalty": _is(0),
    "repetition_penalty": _is(1),
    "store": _is(False),
    "modalities": _is([], ["text"]),
    "logit_bias": _empty,
    "tools": _empty,
    "tool_choice": _is("none", "auto"),
    "functions": _empty,
    "function_call": _is("none", "auto"),
    "response_format": _text_format,
    "audio": _is(),
    "moderation": _is(),
    "web_search_options": _is(),
    "chat_template_kwargs": _empty,
}
"""When a refused field asks for nothing; null always does."""


def refuse_unsupported(request: ChatCompletionRequest) -> None:
    """Refuses the first field that asks for something this server does not do.

    Raises:
        InvalidRequest: when a field needs another one that is not there.
        UnsupportedParameter: when nothing would make it work.
    """
    _check_companions(request)
    for name, neutral in NEUTRAL.items():
        value = getattr(request, name)
        if value is not None and not neutral(value):
            raise UnsupportedParameter(_refusal(name, request.model), param=name)


def ignored_no_ops(request: ChatCompletionRequest) -> list[str]:
    """The known fields that were given and change nothing."""
    ignored = [name for name in NO_OPS if getattr(request, name) is not None]
    options = request.stream_options
    if options is not None and options.include_obfuscation is not None:
        ignored.append("stream_options.include_obfuscation")
    return ignored


def _check_companions(request: ChatCompletionRequest) -> None:
    choice = request.tool_choice
    if choice not in (None, "none", "auto") and not request.tools:
        raise InvalidRequest("'tool_choice' is only allowed with 'tools'.", param="tool_choice")
    if request.top_logprobs and not request.logprobs:
        raise InvalidRequest(
            "'top_logprobs' is only allowed when 'logprobs' is true.", param="top_logprobs"
        )


def _refusal(name: str, model: str) -> str:
    return (
        f"Unsupported parameter: '{name}' is not supported by this server "
        f"(model '{model}', endpoint {ENDPOINT})."
    )
