"""The model's tokenizer and chat template, for several threads at once."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer as BackendTokenizer
from tokenizers import decoders

from shared.requests import ChatMessage
from worker.engine.detokenize import ByteDetokenizer, WindowDetokenizer, token_bytes
from worker.engine.end_of_turn import learn_end_of_turn
from worker.engine.engine import Detokenizer
from worker.engine.template_clock import CLOCK, clock, with_fixed_clock
from worker.engine.upstream import Tokenizer, load_tokenizer


class ModelText:
    """`TextCodec` over a tokenizer of transformers.

    Rendering and encoding hold a lock, since transformers changes settings of a tokenizer in use.
    Detokenizers need none: they read pieces of the vocabulary only.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._new_detokenizer = _detokenizers(tokenizer)

    @property
    def eos_tokens(self) -> frozenset[int]:
        """End-of-sequence ids that the tokenizer names."""
        return frozenset(self._tokenizer.eos_token_ids)

    @property
    def vocab_size(self) -> int:
        """Tokens that have a text, added ones included."""
        return len(self._tokenizer)

    def detokenizer(self) -> Detokenizer:
        """A fresh incremental detokenizer."""
        return self._new_detokenizer()

    def render_chat(self, messages: Sequence[ChatMessage], created_at: int) -> list[int]:
        """Token ids of the conversation, ending where the assistant's answer begins.

        Models without a chat template get lines of the form ``Role: text``.

        Raises:
            ValueError: when the template refuses the conversation.
        """
        turns = [_turn(message) for message in messages]
        with self._lock:
            if not self._tokenizer.has_chat_template:
                return self._tokenizer.encode(plain_prompt(turns))
            return list(self._apply(turns, created_at, tokenize=True, add_generation_prompt=True))

    def end_of_turn(self) -> str | None:
        """The marker that ends an assistant's turn, if it can be told."""
        if not self._tokenizer.has_chat_template:
            return "\nUser:"

        def render(turns: Sequence[dict[str, str]]) -> str:
            return self._apply(list(turns), 0, tokenize=False, add_generation_prompt=False)

        with self._lock:
            return learn_end_of_turn(render, self._tokenizer.bos_token)

    def special_token(self, text: str) -> int | None:
        """The id of the special token that this text is as a whole, if it is one."""
        with self._lock:
            ids = self._tokenizer.encode(text, add_special_tokens=False)
        return ids[0] if len(ids) == 1 and ids[0] in self._tokenizer.all_special_ids else None

    def _apply(self, turns: list[dict[str, str]], created_at: int, **options: bool) -> Any:
        extra: dict[str, Any] = {}
        if isinstance(self._tokenizer.chat_template, str):
            extra = {
                "chat_template": with_fixed_clock(self._tokenizer.chat_template),
                CLOCK: clock(created_at),
            }
        try:
            return self._tokenizer.apply_chat_template(turns, **extra, **options)
        except Exception as error:  # a template is a program and raises what it likes
            raise ValueError(f"The chat template refuses the conversation: {error}") from error


def load_text(path: Path, eos_token_ids: Sequence[int]) -> ModelText:
    """The tokenizer of a model directory; ``eos_token_ids`` are those of the config."""
    tokenizer = load_tokenizer(path, eos_token_ids=list(eos_token_ids) or None)
    return ModelText(cast("Tokenizer", tokenizer))


def plain_prompt(turns: Sequence[dict[str, str]]) -> str:
    """A conversation for a model without a chat template."""
    lines = [f"{turn['role'].capitalize()}: {turn['content']}\n" for turn in turns]
    return "".join([*lines, "Assistant:"])


def _turn(message: ChatMessage) -> dict[str, str]:
    turn = {"role": message.role, "content": message.content}
    if message.name is not None:
        turn["name"] = message.name
    return turn


class _Pieces(dict[int, bytes]):
    """Bytes of each token of a byte-level vocabulary, looked up once."""

    def __init__(self, backend: BackendTokenizer) -> None:
        super().__init__()
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        self._special = {index for index, token in added.items() if token.special}

    def __missing__(self, token: int) -> bytes:
        piece = None if token in self._special else self._backend.id_to_token(token)
        self[token] = b"" if piece is None else token_bytes(piece)
        return self[token]


def _detokenizers(tokenizer: Tokenizer) -> Callable[[], Detokenizer]:
    """How to make a detokenizer for this tokenizer."""
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, BackendTokenizer):
        return lambda: WindowDetokenizer(
            lambda ids: tokenizer.decode(list(ids), skip_special_tokens=True)
        )
    # A copy, since transformers sets options on the original while a prompt is encoded.
    copy = BackendTokenizer.from_str(backend.to_str())
    if isinstance(copy.decoder, decoders.ByteLevel):
        pieces = _Pieces(copy)
        return lambda: ByteDetokenizer(pieces)
    return lambda: WindowDetokenizer(lambda ids: copy.decode(list(ids), skip_special_tokens=True))
