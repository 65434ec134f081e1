"""Keeping room on the disk for what must be written.

    stands ──the disk is full──▶ dropped ──room for twice its size, looked for──▶ stands

When the disk is full the ballast goes, and what is at work is recorded in its place: frames,
endings, receipts, deletions. New work and requests to stop are refused from then on until the
ballast stands again, or the room it gave would go to them. A start that finds no ballast and no
room for it begins so. One timer, and only while the ballast is missing.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from app.storage.ballast import Ballast
from app.storage.writer import Writer

LOOK_S: Final = 5.0
"""Between two looks for room while the ballast is missing."""

_log = structlog.get_logger("room")


class Room:
    """The ballast's keeper, on the event loop.

    Args:
        on_short: told True when room runs short, False when there is enough again.

    Attributes:
        short: only what is at work may be written.
    """

    def __init__(self, ballast: Ballast, on_short: Callable[[bool], None]) -> None:
        self._ballast = ballast
        self._on_short = on_short
        self._writer: Writer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.short = False

    def start(self, writer: Writer, *, stands: bool) -> None:
        """Keep room for this writer; ``stands`` says whether the ballast does."""
        self._writer = writer
        if not stands:
            self._set(short=True)

    def full(self, full: bool) -> None:  # noqa: FBT001 - the writer's one fact
        """The disk is full, or no longer."""
        if not self._ballast.size:
            self._set(short=full)
        elif full:
            self._set(short=True)
            loop = asyncio.get_running_loop()
            loop.run_in_executor(None, self._ballast.drop).add_done_callback(_dropped)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, *, short: bool) -> None:
        if self._writer is None or self.short == short:
            return
        self.short = self._writer.sparing = short
        _log.warning("disk_full" if short else "disk_has_room")
        if short and self._ballast.size:
            self._look_later()
        self._on_short(short)

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        assert self._writer is not None, "nobody looks before the start"  # noqa: S101
        if self._writer.full:
            self._look_later()
            return
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, self._ballast.make).add_done_callback(self._made)

    def _made(self, future: "asyncio.Future[bool]") -> None:
        if self._timer is None:  # closed meanwhile
            return
        if future.cancelled() or future.exception() is not None or not future.result():
            self._look_later()
        elif self._writer is not None and self._writer.full:
            self.full(True)
            self._look_later()
        else:
            self._timer = None
            self._set(short=False)


def _dropped(future: "asyncio.Future[None]") -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.error("ballast_not_dropped", error=str(error))
    else:
        _log.warning("ballast_dropped")
