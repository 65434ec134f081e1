"""Tokens to text, one at a time, such that no text ever needs to be taken back.

Two ways, chosen by how the tokenizer decodes:

* Byte-level vocabularies (GPT-2's alphabet: Llama 3, Qwen, SmolLM, ...) name the bytes of each
  token, so an incremental UTF-8 decoder is all it takes.
* Every other decoder may join tokens as it likes (SentencePiece drops the first space, byte
  fallback gathers bytes). There a short window of tokens is decoded twice, without and with the
  newest, and the difference is the new text.

Special tokens are not shown. A character is shown when it is whole.
"""

import codecs
from collections.abc import Callable, Mapping, Sequence
from typing import Final

_REPLACEMENT: Final = "\ufffd"
_WINDOW_TOKENS_MAX: Final = 64
"""Undecided tokens after which they are shown as they are: no character is that long, and without
a bound a model that babbles broken bytes would make each token dearer than the one before."""


def gpt2_alphabet() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for.

    Printable characters of Latin-1 stand for themselves, the rest got characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(256 + n): byte for n, byte in enumerate(others)})
    return alphabet


_ALPHABET: Final = gpt2_alphabet()


def token_bytes(piece: str) -> bytes:
    """The bytes of a byte-level vocabulary entry; tokens added later are written literally."""
    try:
        return bytes(_ALPHABET[char] for char in piece)
    except KeyError:
        return piece.encode()


class ByteDetokenizer:
    """For vocabularies whose tokens are known bytes.

    Args:
        pieces: token id to bytes, empty for tokens that show nothing.
    """

    __slots__ = ("_decode", "_pieces")

    def __init__(self, pieces: Mapping[int, bytes]) -> None:
        self._pieces = pieces
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def push(self, token: int) -> str:
        """Text made certain by this token."""
        return self._decode(self._pieces[token])

    def flush(self) -> str:
        """An unfinished character becomes U+FFFD."""
        return self._decode(b"", final=True)


class WindowDetokenizer:
    """For any decoder that works on short runs of tokens.

    The window starts at tokens whose text is already shown, so that the decoder sees how the new
    ones join them.

    Args:
        decode: token ids to text, without special tokens.
    """

    __slots__ = ("_decode", "_read", "_window")

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._read = 0

    def push(self, token: int) -> str:
        """Text made certain by this token."""
        self._window.append(token)
        fresh = self._fresh()
        undecided = not fresh or fresh.endswith(_REPLACEMENT)
        if undecided and len(self._window) - self._read < _WINDOW_TOKENS_MAX:
            return ""
        self._advance()
        return fresh

    def flush(self) -> str:
        """What is left at the end."""
        fresh = self._fresh()
        self._advance()
        return fresh

    def _fresh(self) -> str:
        """Text of the window behind what its first part alone shows."""
        shown = self._decode(self._window[: self._read])
        return self._decode(self._window)[len(shown) :]

    def _advance(self) -> None:
        del self._window[: self._read]
        self._read = len(self._window)
