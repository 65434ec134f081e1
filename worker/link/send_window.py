"""Which kept frame goes out next.

The cursor runs ahead of the acknowledgements. Moved back, by a ``Welcome`` or a ``Replay``, it runs
at most a window beyond the last acknowledged frame until it has caught up with the newest.
"""

from typing import Final

from shared.limits import FRAME_BYTES_MAX, REPLAY_WINDOW_FRAMES
from worker.link.frame_buffer import FrameBuffer

REPLAY_QUIET_S: Final = 0.5
"""A repeated ``Replay`` from the same number is ignored for so long: a parent that reads a gap asks
once per frame behind it."""

STALLED_HEARTBEATS: Final = 3
"""Heartbeats of the parent that show the same ``received``, below what went out, before the worker
sends again unasked."""


class SendWindow:
    """The cursor over a ``FrameBuffer``."""

    __slots__ = (
        "_cursor",
        "_frames",
        "_received",
        "_replayed_at",
        "_replayed_from",
        "_stalled",
        "_window_end",
    )

    def __init__(self, frames: FrameBuffer) -> None:
        self._frames = frames
        self._cursor = 1
        self._window_end: int | None = None
        self._replayed_from = 0
        self._replayed_at = 0.0
        self._received = 0
        self._stalled = 0

    def add_to(self, messages: list[bytes]) -> int:
        """Append the frames that may go out now, about ``FRAME_BYTES_MAX`` of them.

        Returns:
            The cursor behind them, for ``sent_before``.
        """
        last = self._frames.last_made
        if self._window_end is not None:
            last = min(last, self._window_end)
        cursor, room = self._cursor, FRAME_BYTES_MAX
        while cursor <= last:
            data = self._frames.frame(cursor)
            room -= len(data)
            if room < 0 and cursor > self._cursor:
                break
            messages.append(data)
            cursor += 1
        return cursor

    def sent_before(self, cursor: int) -> None:
        """The socket has taken the frames below ``cursor``."""
        self._cursor = cursor
        if cursor > self._frames.last_made:
            self._window_end = None

    def acknowledged(self, seq: int) -> None:
        """The buffer has dropped the frames up to ``seq``."""
        self._cursor = max(self._cursor, self._frames.first_unacked)
        if self._window_end is not None:
            self._window_end = max(self._window_end, seq + REPLAY_WINDOW_FRAMES)

    def welcomed(self, last_seq: int) -> None:
        """A parent begins to listen behind ``last_seq``."""
        self._received = last_seq
        self._rewind(last_seq + 1)

    def replay(self, from_seq: int, now: float) -> None:
        """The parent misses frames from here on."""
        if from_seq == self._replayed_from and now - self._replayed_at < REPLAY_QUIET_S:
            return
        self._replayed_from, self._replayed_at = from_seq, now
        self._rewind(from_seq)

    def compare(self, received: int) -> None:
        """A heartbeat says what the parent has received."""
        stuck = received == self._received and received < self._cursor - 1
        self._stalled = self._stalled + 1 if stuck else 0
        self._received = received
        if self._stalled >= STALLED_HEARTBEATS:
            self._rewind(received + 1)

    def _rewind(self, seq: int) -> None:
        self._stalled = 0
        self._cursor = min(max(seq, self._frames.first_unacked), self._frames.last_made + 1)
        self._window_end = self._cursor + REPLAY_WINDOW_FRAMES - 1
