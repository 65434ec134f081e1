"""Vocabulary, template and answers of the scripted engine.

Its tokens are the 256 bytes, the halves of some words, and marks. A prompt is bytes between marks,
so its length in tokens can be told from its text: the bytes of every message, three marks or role
tokens around each, and two at the end. An answer is a sequence of words, each in two tokens; some
words are cut inside a character, so that text comes whole only with the second token.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Final

from shared.requests import ChatMessage
from worker.engine.detokenize import ByteDetokenizer
from worker.engine.engine import Detokenizer
from worker.engine.script import Orders, Script, read_orders

_WORDS: Final = (
    " a", " the", " job", " queue", " worker", " token", " batch", " answer", " waits", " runs",
    " ends", " and", " with", " never", " twice", " ďábelské", " é", " 日本語", " 🏳️‍🌈", " 👩‍👩‍👧‍👦",
)  # fmt: skip
_BYTES: Final = 256


def _halves(word: str) -> tuple[bytes, bytes]:
    """A word in two: after its first byte behind the space for the ones beyond ASCII, which cuts
    their first character; else in the middle."""
    data = word.encode()
    cut = len(data) // 2 if word.isascii() else 2
    return data[:cut], data[cut:]


_PIECES: Final = (
    *(bytes((byte,)) for byte in range(_BYTES)),
    *(half for word in _WORDS for half in _halves(word)),
)
_ROLES: Final = ("system", "user", "assistant", "tool")
END_OF_TURN: Final = len(_PIECES)
"""The end-of-sequence token, also behind every message of a prompt."""
_FIRST_ROLE: Final = END_OF_TURN + 1
_USER: Final = _FIRST_ROLE + _ROLES.index("user")
_ASSISTANT: Final = _FIRST_ROLE + _ROLES.index("assistant")
_NEWLINE: Final = ord("\n")
VOCAB_SIZE: Final = _FIRST_ROLE + len(_ROLES)

PIECES: Final[Mapping[int, bytes]] = {
    token: _PIECES[token] if token < len(_PIECES) else b"" for token in range(VOCAB_SIZE)
}


class ScriptedText:
    """`TextCodec` of the scripted engine."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def detokenizer(self) -> Detokenizer:
        """A fresh incremental detokenizer."""
        return ByteDetokenizer(PIECES)

    def render_chat(self, messages: Sequence[ChatMessage], created_at: int) -> list[int]:
        """Token ids of the conversation; takes as long as script and prompt ask.

        Raises:
            ValueError: when the prompt orders it, or its orders make no sense.
        """
        del created_at  # this template shows no clock
        tokens: list[int] = []
        for message in messages:
            tokens += (_FIRST_ROLE + _ROLES.index(message.role), _NEWLINE)
            tokens += message.content.encode()
            tokens.append(END_OF_TURN)
        tokens += (_ASSISTANT, _NEWLINE)
        orders = orders_of(tokens, self._script)
        if takes_s := self._script.prepare_s + orders.prepare_s:
            time.sleep(takes_s)
        if orders.refuse is not None:
            raise ValueError(orders.refuse)
        return tokens


def orders_of(prompt: Sequence[int], script: Script) -> Orders:
    """The orders in the last user message of a rendered prompt.

    Raises:
        ValueError: when they make no sense.
    """
    if not script.obey_prompts or _USER not in prompt:
        return Orders()
    begin = len(prompt) - list(reversed(prompt)).index(_USER)
    end = prompt.index(END_OF_TURN, begin) if END_OF_TURN in prompt[begin:] else len(prompt)
    content = bytes(token for token in prompt[begin:end] if token < _BYTES)
    return read_orders(content.decode(errors="replace"))


class Answer:
    """The tokens of one answer, each computed from its position alone."""

    __slots__ = ("_key", "_said", "length")

    def __init__(self, prompt: Sequence[int], seed: int, choice: int, orders: Orders, length: int):
        digest = hashlib.blake2b(repr(tuple(prompt)).encode(), digest_size=16).digest()
        self._key = digest + seed.to_bytes(8, "big") + choice.to_bytes(4, "big")
        self._said = None if orders.say is None else orders.say.encode()
        if self._said is not None:
            self.length = len(self._said)
        else:
            self.length = length if orders.tokens is None else orders.tokens

    def token(self, position: int) -> int:
        """The token at this position; the end-of-sequence token after the last."""
        if position >= self.length:
            return END_OF_TURN
        if self._said is not None:
            return self._said[position]
        word, half = divmod(position, 2)
        if position == self.length - 1 and half == 0:
            return ord(".")
        draw = hashlib.blake2b(self._key + word.to_bytes(8, "big"), digest_size=8).digest()
        return _BYTES + 2 * (int.from_bytes(draw, "big") % len(_WORDS)) + half
