"""The parent's side of the protocol with one worker generation: no I/O, no clock of its own.

    expected ──Hello──▶ greeted ──Ready──▶ serving
        └───────────────────┴─────────────────┴──── close ──▶ closed

Frames. ``received`` counts what has been taken in, in order; ``committed`` what the store holds.
A frame at or under ``received`` is a repeat: it is answered with an ``Ack`` of what is committed
and otherwise dropped. A frame past ``received + 1`` shows a loss: it is dropped and the missing
ones are asked for. So every frame is handed up once, in order, whatever the connection did.

Commands. A heartbeat says which command the worker has seen last. One that was sent before the
heartbeat before and is not among them was lost with a connection that has broken unseen: the worker
is asked who it is, and what it then does not hold is sent again.

Trust. The worker's word counts only while the session is not closed. Epochs protect the other
direction: the worker ignores a parent older than the one it last obeyed.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from shared.ids import GenerationId, StoreId
from shared.limits import PROTOCOL_VERSION
from shared.messages import (
    Ack,
    Frame,
    Heartbeat,
    Hello,
    Identify,
    Loading,
    ParentHeartbeat,
    Ready,
    Replay,
    ToParent,
    ToWorker,
    Welcome,
)


class SessionState(StrEnum):
    """How far the conversation with a worker has come."""

    EXPECTED = "expected"
    GREETED = "greeted"
    SERVING = "serving"
    CLOSED = "closed"


class SessionEvent(StrEnum):
    """What moves a session."""

    HELLO = "hello"
    READY = "ready"
    CLOSE = "close"


TRANSITIONS: Final[dict[SessionState, dict[SessionEvent, SessionState]]] = {
    SessionState.EXPECTED: {
        SessionEvent.HELLO: SessionState.GREETED,
        SessionEvent.CLOSE: SessionState.CLOSED,
    },
    SessionState.GREETED: {
        SessionEvent.HELLO: SessionState.GREETED,
        SessionEvent.READY: SessionState.SERVING,
        SessionEvent.CLOSE: SessionState.CLOSED,
    },
    SessionState.SERVING: {
        SessionEvent.HELLO: SessionState.GREETED,
        SessionEvent.READY: SessionState.SERVING,
        SessionEvent.CLOSE: SessionState.CLOSED,
    },
    SessionState.CLOSED: {},
}


class Send(msgspec.Struct, frozen=True):
    """Send these to the worker, in order."""

    messages: tuple[ToWorker, ...]


class FrameReceived(msgspec.Struct, frozen=True):
    """The next frame, exactly once and in order."""

    frame: Frame


class Greeted(msgspec.Struct, frozen=True):
    """The worker said ``Hello`` and was welcomed: commands without an answer go out again."""

    hello: Hello


class BecameReady(msgspec.Struct, frozen=True):
    """The model is loaded; the worker takes jobs."""

    ready: Ready


class LoadProgress(msgspec.Struct, frozen=True):
    """The worker is still loading."""

    loading: Loading


class Broken(msgspec.Struct, frozen=True):
    """The worker cannot be worked with: it is to be declared lost, with this reason."""

    reason: str


Effect = Send | FrameReceived | Greeted | BecameReady | LoadProgress | Broken


@dataclass(slots=True)
class Session:
    """One generation's conversation. Times are monotonic seconds.

    ``epoch`` and ``store`` are the parent's own; ``last_command`` is the highest command sent.
    """

    generation: GenerationId
    epoch: int
    store: StoreId
    committed: int = 0
    received: int = 0
    last_command: int = 0
    state: SessionState = SessionState.EXPECTED
    heard_at: float | None = None
    heartbeat: Heartbeat | None = None
    repeated_frames: int = 0
    lost_frames: int = 0
    lost_commands: int = 0
    _asked_from: int = field(default=0, repr=False)
    _sent_before: int = field(default=0, repr=False)
    _compared: int = field(default=0, repr=False)

    def receive(self, message: ToParent, now: float) -> list[Effect]:
        """What to do about a message of this generation."""
        if self.state is SessionState.CLOSED:
            return []
        self.heard_at = now
        match message:
            case Frame():
                return self._frame(message)
            case Heartbeat():
                return self._heartbeat(message)
            case Hello():
                return self._hello(message)
            case Ready():
                return self._ready(message)
            case Loading():
                return [LoadProgress(message)]

    def frame_committed(self, seq: int) -> Send:
        """The store holds every frame up to ``seq``."""
        self.committed = seq
        return Send((Ack(self.epoch, seq),))

    def pulse(self) -> Send:
        """The parent's heartbeat."""
        return Send(
            (ParentHeartbeat(self.epoch, self.committed, self.received, self.last_command),)
        )

    def close(self) -> None:
        """Nothing this worker says counts any more."""
        self.state = SessionState.CLOSED

    def _move(self, event: SessionEvent) -> bool:
        following = TRANSITIONS[self.state].get(event)
        if following is None:
            return False
        self.state = following
        return True

    def _hello(self, hello: Hello) -> list[Effect]:
        if hello.protocol != PROTOCOL_VERSION:
            return [
                Broken(
                    f"the worker speaks protocol {hello.protocol}, this server {PROTOCOL_VERSION}"
                )
            ]
        if hello.first_unacked > self.committed + 1:
            return [Broken("the worker no longer keeps frames that the store lacks")]
        self._move(SessionEvent.HELLO)
        self._asked_from = self._sent_before = 0
        self._compared = self.last_command  # what of it is missing is sent again now
        welcome = Welcome(self.epoch, self.store, self.generation, self.committed)
        return [Send((welcome,)), Greeted(hello)]

    def _ready(self, ready: Ready) -> list[Effect]:
        if not self._move(SessionEvent.READY):
            return [Send((Identify(self.epoch),))]
        return [BecameReady(ready)]

    def _heartbeat(self, heartbeat: Heartbeat) -> list[Effect]:
        self.heartbeat = heartbeat
        if self.state is SessionState.EXPECTED:
            return [Send((Identify(self.epoch),))]
        lost = self._sent_before > max(heartbeat.last_command, self._compared)
        self._sent_before = self.last_command
        if lost and self.state is SessionState.SERVING:
            self.lost_commands += 1
            return [Send((Identify(self.epoch),))]
        if heartbeat.last_made > self.received:
            return self._ask_again()
        return []

    def _frame(self, frame: Frame) -> list[Effect]:
        if self.state is SessionState.EXPECTED:
            return [Send((Identify(self.epoch),))]
        if frame.seq <= self.received:
            self.repeated_frames += 1
            return [Send((Ack(self.epoch, self.committed),))]
        if frame.seq > self.received + 1:
            self.lost_frames += 1
            return self._ask_again() if self._asked_from <= self.received else []
        self.received = frame.seq
        return [FrameReceived(frame)]

    def _ask_again(self) -> list[Effect]:
        self._asked_from = self.received + 1
        return [Send((Replay(self.epoch, self._asked_from),))]
