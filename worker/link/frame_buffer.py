"""Frames that the parent has not acknowledged yet, encoded once and kept as bytes.

Bounded in bytes with two marks. Past the lower one the buffer is ``paused``: the engine makes no
more tokens. The room above it is reserved for answers and terminal events, which jobs held already
can still cause; at the upper mark it is ``full`` and the session takes no further command.
"""

from dataclasses import dataclass, field
from typing import Final

from shared.ids import CommandId

FRAME_OVERHEAD_BYTES: Final = 256
"""What one kept frame costs beside its bytes: many small frames count for what they take."""

RESERVED_BYTES_MAX: Final = 4 * 1024 * 1024
RESERVED_SHARE: Final = 8
"""The reserve is this part of the whole, and never more than ``RESERVED_BYTES_MAX``."""

RESUME_SHARE: Final = 0.75
"""A paused engine goes on below this part of the lower mark, so that one ack does not flap it."""


@dataclass(frozen=True, slots=True)
class _Kept:
    data: bytes
    answered: tuple[CommandId, ...]


@dataclass(slots=True)
class FrameBuffer:
    """The unacknowledged tail of a generation's frames, by number."""

    bytes_max: int
    first_unacked: int = 1
    last_made: int = 0
    bytes_used: int = 0
    paused: bool = False
    _kept: dict[int, _Kept] = field(default_factory=dict[int, _Kept])

    @property
    def pause_at_bytes(self) -> int:
        """The lower mark."""
        return self.bytes_max - min(self.bytes_max // RESERVED_SHARE, RESERVED_BYTES_MAX)

    @property
    def full(self) -> bool:
        """Whether the reserve is used up too."""
        return self.bytes_used >= self.bytes_max

    def append(self, data: bytes, answered: tuple[CommandId, ...]) -> None:
        """Keep the frame numbered ``last_made + 1``. ``answered`` are the commands it answers."""
        self.last_made += 1
        self._kept[self.last_made] = _Kept(data, answered)
        self.bytes_used += len(data) + FRAME_OVERHEAD_BYTES
        if self.bytes_used >= self.pause_at_bytes:
            self.paused = True

    def frame(self, seq: int) -> bytes:
        """The bytes of a kept frame."""
        return self._kept[seq].data

    def drop_through(self, seq: int) -> list[CommandId]:
        """Forget frames up to ``seq``; the commands that they answered."""
        answered: list[CommandId] = []
        for number in range(self.first_unacked, min(seq, self.last_made) + 1):
            kept = self._kept.pop(number)
            self.bytes_used -= len(kept.data) + FRAME_OVERHEAD_BYTES
            answered.extend(kept.answered)
            self.first_unacked = number + 1
        if self.bytes_used < self.pause_at_bytes * RESUME_SHARE:
            self.paused = False
        return answered
