"""When a worker that still sends heartbeats is wedged: its engine has work and finishes nothing.

Pure: the caller gives heartbeats and the time. A step or a prefill chunk that ends is progress, and
so is a frame that is made: whatever hangs makes neither. While a worker has jobs but no row, it may
be preparing their prompts, which has a limit of its own.
"""

from dataclasses import dataclass
from typing import Final

from shared.messages import Heartbeat

SLOWEST_CHUNKS: Final = 10
"""A worker may take this many times its slowest step so far."""


@dataclass(slots=True)
class Engine:
    """One worker's engine as its heartbeats tell of it. Times are monotonic seconds; ``since`` is
    when it last finished something, or had nothing to do."""

    steps: int = -1
    frames: int = -1
    since: float = 0.0

    def beat(self, heartbeat: Heartbeat, now: float, *, unanswered: bool) -> None:
        """Take a heartbeat in. ``unanswered`` says that commands wait for an answer."""
        idle = not (heartbeat.rows or heartbeat.pending or unanswered)
        moved = (heartbeat.steps, heartbeat.last_made) != (self.steps, self.frames)
        if moved or idle or heartbeat.state != "serving":
            self.since = now
        self.steps, self.frames = heartbeat.steps, heartbeat.last_made

    def forgive(self, seconds: float) -> None:
        """The parent did not run for so long: that is nobody's silence."""
        self.since += seconds


def stall_limit_s(heartbeat: Heartbeat, engine_stall_s: float, prepare_timeout_s: float) -> float:
    """How long this worker may go without finishing anything."""
    limit_s = max(engine_stall_s, SLOWEST_CHUNKS * heartbeat.chunk_s_max)
    return limit_s if heartbeat.rows else limit_s + prepare_timeout_s
