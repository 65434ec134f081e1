"""Noticing a reader that has stopped reading: its socket stays open and takes nothing."""

import asyncio
from collections.abc import Callable
from typing import Self


class StallTimer:
    """Calls ``on_stall`` when one write took longer than the limit.

    One timer for the whole stream, not one per write: it looks every ``limit_s`` whether the write
    it saw the last time is still the one under way, so a stall is found after one to two limits.
    The writer keeps ``writing`` and ``writes`` up to date.
    """

    def __init__(self, limit_s: float, on_stall: Callable[[], None]) -> None:
        self.writing = False
        self.writes = 0
        self._limit_s = limit_s
        self._on_stall = on_stall
        self._seen = -1

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._limit_s, self._look)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if self.writing and self.writes == self._seen:
            self._on_stall()
            return
        self._seen = self.writes if self.writing else -1
        self._timer = self._loop.call_later(self._limit_s, self._look)
