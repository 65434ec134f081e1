"""The interface between the loop and whatever computes tokens.

Two implementations: ``mlx_engine`` (mlx-lm's ``BatchGenerator``) and ``scripted_engine``
(deterministic tokens without MLX, with delays and failures to order). One conformance suite runs
over both. Every method is called from one thread, the engine thread, except ``text``, whose result
is used from preparation threads too.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NewType, Protocol

import msgspec

from shared.failures import Failure
from shared.requests import ChatMessage
from shared.sampling import SamplingParams

RowId = NewType("RowId", int)
"""One sequence in the batch; chosen by the loop, never reused while the engine lives."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the loaded model is; constant for the life of the engine.

    ``turn_stops`` are texts that end an assistant's turn in this model's template without being a
    token of their own: stop strings of every chat, silent ones.
    """

    context_tokens: int
    vocab_size: int
    eos_tokens: frozenset[int]
    fingerprint: str
    kv_bytes_per_token: int
    arithmetic: str
    turn_stops: tuple[str, ...] = ()


class RowSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence to decode.

    ``replayed`` are completion tokens of earlier attempts: they are fed as context, are not
    reported again, and the next draw is at position ``len(replayed)``. ``max_tokens`` counts new
    tokens only and is at least 1.
    """

    row: RowId
    prompt: Sequence[int]
    sampling: SamplingParams
    max_tokens: int
    choice: int = 0
    replayed: Sequence[int] = ()


class RowToken(msgspec.Struct, frozen=True, gc=False):
    """One new token. ``finish`` is set with the last: ``stop`` for an end-of-sequence token (which
    is itself reported), ``length`` when ``max_tokens`` is reached. The row is gone then."""

    row: RowId
    token: int
    finish: Literal["stop", "length"] | None = None


class RowProgress(msgspec.Struct, frozen=True, gc=False):
    """One prefill chunk of this row was computed: ``done`` of ``total`` prompt tokens."""

    row: RowId
    done: int
    total: int


class RowFailed(msgspec.Struct, frozen=True):
    """The row alone failed and is gone; its neighbours are untouched."""

    row: RowId
    failure: Failure


class StepResult(msgspec.Struct, frozen=True):
    """What one step did. Tokens in no particular row order, at most one per row."""

    tokens: Sequence[RowToken] = ()
    progress: Sequence[RowProgress] = ()
    failed: Sequence[RowFailed] = ()


class EngineLost(Exception):
    """The engine cannot go on (out of memory, broken device): the process should end."""


class TextCodec(Protocol):
    """Text to tokens and back; thread-safe, pure."""

    def render_chat(self, messages: Sequence[ChatMessage], created_at: int) -> list[int]:
        """Token ids of the conversation, ending where the assistant's answer begins.

        ``created_at`` (Unix seconds) is what the template's clock shows.

        Raises:
            ValueError: when the template refuses the conversation; the text says why.
        """
        ...

    def detokenizer(self) -> "Detokenizer":
        """A fresh incremental detokenizer."""
        ...


class Detokenizer(Protocol):
    """Turns one choice's tokens into text that never needs to be taken back."""

    def push(self, token: int) -> str:
        """Text made certain by this token: whole characters only, possibly empty."""
        ...

    def flush(self) -> str:
        """What is left at the end: an unfinished character becomes U+FFFD."""
        ...


class Engine(Protocol):
    """A batch of rows that advance together."""

    def load(self, on_progress: Callable[[int, int], None]) -> EngineInfo:
        """Load weights; called once, first. ``on_progress(done, total)`` in bytes."""
        ...

    def warm_up(self) -> None:
        """Compile every kernel a request can need, so that none is compiled while others wait."""
        ...

    def text(self) -> TextCodec:
        """The model's tokenizer and template; valid after ``load``."""
        ...

    def insert(self, spec: RowSpec) -> None:
        """Add a row; it joins the batch at the next step.

        Raises:
            ValueError: when the spec is invalid (empty prompt, over the context, unknown row); the
                engine is unchanged.
        """
        ...

    def remove(self, row: RowId) -> None:
        """Drop a row at any stage; unknown rows are ignored. Nothing of it is reported after."""
        ...

    def step(self) -> StepResult:
        """One decode step for all decoding rows, then at most ``prefill_chunk_tokens`` of prompts.

        Raises:
            EngineLost: when no further step can succeed. Failures of single rows are reported in
                the result instead.
        """
        ...

    @property
    def rows(self) -> int:
        """Rows inserted and not yet gone."""
        ...

    def close(self) -> None:
        """Release memory; no call follows."""
        ...
