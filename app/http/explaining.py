"""What is wrong with a body, for the person who sent it: which field, and what it may be."""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeVar

import msgspec

from app.domain.errors import InvalidRequest, MalformedJson, MissingParameter, UnknownParameter

T = TypeVar("T")

UNDECODABLE: Final = (msgspec.DecodeError, RecursionError, ValueError)
"""What a decoder raises beside ``ValidationError``."""

NOT_AN_OBJECT: Final = "The body must be a JSON object."

_NAME_CHARS_SHOWN: Final = 64
_PATH: Final = re.compile(r" - at `(?:key in )?\$\.?(.*?)`$", re.DOTALL)
_MISSING: Final = re.compile(r"^Object missing required field `(\w+)`")
_UNKNOWN: Final = re.compile(r"^Object contains unknown field `(.*)`$", re.DOTALL)
_WRONG_TYPE: Final = re.compile(r"^Expected `([^`]+)`, got `([^`]+)`")


def decode(
    decoder: msgspec.json.Decoder[T], body: bytes, expected: Callable[[str], str | None]
) -> T:
    """What the decoder makes of a body, or the refusal of what is wrong with it.

    Raises:
        InvalidRequest: one of its kinds, naming the field where there is one.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        if about_the_whole(error):
            raise InvalidRequest(NOT_AN_OBJECT) from None
        raise explained(error, expected) from None
    except UNDECODABLE as error:
        raise malformed(body, error) from None


def malformed(body: bytes, error: Exception) -> MalformedJson:
    """The refusal of a body that is no JSON."""
    if not body.strip():
        return MalformedJson("The body is empty; a JSON object is needed.")
    if isinstance(error, RecursionError):
        return MalformedJson("The body's JSON is nested too deeply.")
    return MalformedJson(f"The body is not valid JSON: {error}.")


def about_the_whole(error: msgspec.ValidationError) -> bool:
    """Whether the body is something else than an object."""
    return _PATH.search(str(error)) is None and str(error).startswith("Expected `object`")


def explained(
    error: msgspec.ValidationError, expected: Callable[[str], str | None]
) -> InvalidRequest:
    """The refusal of a field, ``expected`` knowing what it may be."""
    text = str(error)
    found = _PATH.search(text)
    path, reason = (found.group(1), text[: found.start()]) if found else ("", text)
    if missing := _MISSING.match(reason):
        param = _joined(path, missing.group(1))
        return MissingParameter(f"Missing required parameter: '{param}'.", param=param)
    if unknown := _UNKNOWN.match(reason):
        param = _joined(path, unknown.group(1)[:_NAME_CHARS_SHOWN])
        return UnknownParameter(f"Unknown parameter: '{param}'.", param=param)
    if (allowed := expected(path)) is not None:
        return InvalidRequest(f"Invalid '{path}': it must be {allowed}.", param=path)
    if wrong := _WRONG_TYPE.match(reason):
        wanted, got = wrong.groups()
        text = f"Invalid type for '{path}': expected {wanted}, got {got}."
        return InvalidRequest(text, param=path or None)
    return InvalidRequest(f"Invalid '{path}': {reason}.", param=path or None)


@contextmanager
def within(path: str) -> Generator[None]:
    """Names what is refused inside by where it lies: ``messages`` becomes ``body.messages``."""
    try:
        yield
    except InvalidRequest as error:
        if error.param is None:
            raise
        param = f"{path}.{error.param}"
        message = error.message.replace(f"'{error.param}'", f"'{param}'")
        raise type(error)(message, param=param) from None


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
