"""What a job asks of a worker: the body of ``RunJob``, also stored in a durable job's row."""

from typing import Literal

import msgspec

from shared.sampling import SamplingParams

Role = Literal["system", "user", "assistant", "tool"]


class ChatMessage(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One turn, already reduced to text: content parts were joined and checked by the parent."""

    role: Role
    content: str
    name: str | None = None


class ChatRequest(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, tag="chat"):
    """A conversation to continue with one assistant turn.

    ``max_tokens`` None means the rest of the context; a larger value than the room left is
    clamped by the worker, which alone knows the prompt's length.
    """

    messages: tuple[ChatMessage, ...]
    sampling: SamplingParams
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


JobRequest = ChatRequest
"""The union of request kinds; one so far."""
