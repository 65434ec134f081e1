"""Wakes a thread that polls file descriptors, from any other thread."""

import os
from typing import Final

_READ_BYTES: Final = 64


class Doorbell:
    """A pipe with one byte in it while it rings.

    Whoever rings first puts their message where the other side looks; the other side silences the
    bell first and then looks. So no message is overlooked, and a bell that rings already costs no
    system call.
    """

    __slots__ = ("_read_end", "_ringing", "_write_end")

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._ringing = False

    def fileno(self) -> int:
        """What becomes readable when the bell rings."""
        return self._read_end

    def ring(self) -> None:
        """Wake the other side."""
        if not self._ringing:
            self._ringing = True
            os.write(self._write_end, b"!")

    def silence(self) -> None:
        """Stop ringing; called by the side that was woken."""
        try:
            os.read(self._read_end, _READ_BYTES)
        except BlockingIOError:
            return
        finally:
            self._ringing = False

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self._read_end)
        os.close(self._write_end)
