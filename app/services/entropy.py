"""Random bytes from the system, drawn in blocks: one call to the kernel serves hundreds of ids."""

import os
from typing import Final

BLOCK_BYTES: Final = 4_096


class Entropy:
    """Hands out random bytes, each once."""

    __slots__ = ("_at", "_block")

    def __init__(self) -> None:
        self._block = b""
        self._at = 0

    def __call__(self, count: int) -> bytes:
        """``count`` random bytes.

        Raises:
            ValueError: more than ``BLOCK_BYTES``.
        """
        if count > BLOCK_BYTES:
            raise ValueError(f"{count} bytes at once, over {BLOCK_BYTES}")
        if self._at + count > len(self._block):
            self._block = os.urandom(BLOCK_BYTES)
            self._at = 0
        self._at += count
        return self._block[self._at - count : self._at]
