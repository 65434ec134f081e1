"""Chat completion chunks: one job's events as the frames of an OpenAI stream.

Most of a chunk never changes while a stream lasts, so it is built once: a frame is that prefix, the
encoded text, and a suffix. Order: the role, the text, one finish, the usage if wanted, ``[DONE]``.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from app.domain.errors import JobServerError
from app.domain.events import Ended, FollowedEvent, Output
from app.domain.job import Ending
from app.http.endings import ending_error
from app.http.errors import error_answer
from app.http.openai.completion import finish_reason, usage_block
from app.http.openai.identity import Identity
from shared.messages import Finish, Reasoning, Text

DONE: Final = b"data: [DONE]\n\n"

_JSON: Final = msgspec.json.Encoder()
_LINE_BREAKS: Final = re.compile("[\u0085\u2028\u2029]")


def json_line(value: Any) -> bytes:
    """JSON without anything that some reader takes for the end of a line.

    The encoder leaves U+0085, U+2028 and U+2029 as they are: legal in JSON, and a line break for
    clients that split the stream with ``splitlines``.
    """
    encoded = _JSON.encode(value)
    if encoded.isascii():
        return encoded
    return _LINE_BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode()).encode()


class ChatChunks:
    """The dialect of one chat stream, whose only choice is number 0."""

    def __init__(self, identity: Identity, *, include_usage: bool) -> None:
        self._include_usage = include_usage
        self._finish: Finish | None = None
        self._head = _head(identity)
        # Asked for, the key stands in every chunk, null but in the last; else it stands in none.
        self._tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        choice = self._head + b'[{"index":0,"delta":'
        self._choice = choice
        self._text = choice + b'{"content":'
        self._reasoning = choice + b'{"reasoning_content":'
        self._rest = b'},"logprobs":null,"finish_reason":null}]' + self._tail

    def opening(self) -> bytes:
        """The role, and no text yet."""
        delta = b'{"role":"assistant","content":"","refusal":null'
        return self._choice + delta + self._rest

    def render(self, events: Sequence[FollowedEvent]) -> bytes:
        """One frame per piece of text; with ``Ended`` all that closes the stream."""
        frames: list[bytes] = []
        for event in events:
            if isinstance(event, Output):
                self._render_output(event, frames)
            elif isinstance(event, Ended):
                frames.append(self._render_ending(event.ending))
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def failure(self, error: JobServerError) -> bytes:
        """The error in band, and the end of the stream."""
        return b"data: " + json_line(error_answer(error)) + b"\n\n" + DONE

    def _render_output(self, output: Output, frames: list[bytes]) -> None:
        for part in output.parts:
            if isinstance(part, Text):
                frames.append(self._text + json_line(part.text) + self._rest)
            elif isinstance(part, Reasoning):
                frames.append(self._reasoning + json_line(part.text) + self._rest)
            elif isinstance(part, Finish):
                # Shown with the ending: a job can still fail after its last token.
                self._finish = part

    def _render_ending(self, ending: Ending) -> bytes:
        if (error := ending_error(ending)) is not None:
            return self.failure(error)
        reason = _JSON.encode(finish_reason(self._finish, ending))
        finish = self._choice + b'{},"logprobs":null,"finish_reason":' + reason + b"}]"
        return finish + self._tail + self._render_usage(ending) + DONE

    def _render_usage(self, ending: Ending) -> bytes:
        if not self._include_usage:
            return b""
        usage = _JSON.encode(usage_block(ending.usage))
        return self._head + b'[],"usage":' + usage + b"}\n\n"


def _head(identity: Identity) -> bytes:
    common: dict[str, Any] = {
        "id": identity.id,
        "object": "chat.completion.chunk",
        "created": identity.created,
        "model": identity.model,
        "system_fingerprint": None,
    }
    if identity.service_tier is not None:
        common["service_tier"] = identity.service_tier
    return b"data: " + json_line(common)[:-1] + b',"choices":'
