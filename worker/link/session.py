"""The worker's session with whichever parent is there: what to obey and what to say, without I/O.

The session says nothing on its own: ``outgoing`` composes what is due from its state whenever the
socket can take it, and ``sent`` records that it was taken. So a dead connection piles up nothing,
and everything that may be lost (greetings, heartbeats) is simply due again.

Frames alone are reliable. They are encoded once, numbered without gaps and kept until an ``Ack``
covers them (``frame_buffer``, ``send_window``).

A restarted parent knows none of our connections. It answers our next message, a heartbeat at the
latest, with ``Identify``; that is how a reconnect is noticed, without watching the socket.

Commands are taken only while SERVING, from the epoch obeyed, and once (``commands``). One that
comes while there is no room is left; the parent is greeted again later, and then repeats everything
unanswered. A lost command is found by the parent, which compares ``last_command`` in our heartbeat
with its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from shared.codec import encode_message
from shared.ids import StoreId
from shared.launch import LaunchRecord
from shared.limits import FRAME_BYTES_MAX, PROTOCOL_VERSION
from shared.messages import (
    Ack,
    BodyPart,
    Cancel,
    Credit,
    Event,
    Exit,
    Frame,
    Heartbeat,
    Hello,
    Identify,
    Loading,
    ParentHeartbeat,
    Preempt,
    Ready,
    Replay,
    RunJob,
    Seal,
    ToWorker,
    Welcome,
)
from worker.inbox import Command, Orphaned
from worker.link.command_desk import CommandDesk
from worker.link.frame_buffer import FrameBuffer
from worker.link.pulse import Pulse
from worker.link.send_window import SendWindow
from worker.link.session_state import Happening, State, next_state
from worker.vitals import Vitals

HELLO_AGAIN_INTERVALS: Final = 3
"""Heartbeat intervals without a ``Welcome`` after which ``Hello`` is due again."""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """Who this process is to the operating system."""

    pid: int
    pid_started: int
    rss_bytes: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Sending:
    """Messages to go out together as one part, and what is no longer due once they have."""

    messages: list[bytes]
    cursor: int | None = None
    hello: bool = False
    ready: bool = False
    heartbeat: bool = False
    loading: bool = False


@dataclass(slots=True)
class Ignored:
    """Messages that changed nothing, by reason."""

    stale: int = 0
    foreign: int = 0
    unexpected: int = 0
    no_room: int = 0

    def by_reason(self) -> dict[str, int]:
        """For the log."""
        return {
            "stale": self.stale,
            "foreign": self.foreign,
            "unexpected": self.unexpected,
            "no_room": self.no_room,
        }


_NOTHING: Final[tuple[Command, ...]] = ()


class WorkerSession:
    """See the module. Owned by one thread; ``paused`` and ``flushed`` may be read from others.

    Args:
        inbox_has_room: whether the engine can be given more commands now.
    """

    def __init__(
        self,
        launch: LaunchRecord,
        process: ProcessFacts,
        vitals: Vitals,
        now: float,
        inbox_has_room: Callable[[], bool],
    ) -> None:
        self.state = State.CONNECTING
        self.epoch = launch.epoch
        self.ignored = Ignored()
        self._launch = launch
        self._process = process
        self._vitals = vitals
        self._inbox_has_room = inbox_has_room
        self._pulse = Pulse(launch.heartbeat_interval_s, launch.orphan_grace_s, now)
        self._frames = FrameBuffer(launch.frame_buffer_bytes_max)
        self._window = SendWindow(self._frames)
        self._desk = CommandDesk()
        self._credit = Credit(rows_free=0, kv_bytes_free=0, last_command=0)
        self._ready: Ready | None = None
        self._ready_due = False
        self._loading: Loading | None = None
        self._greeted_at = now
        self._welcomed = False
        self._left_some = False

    # --- from the engine -----------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether the engine must make no more tokens until frames are acknowledged."""
        return self._frames.paused

    @property
    def flushed(self) -> bool:
        """Whether the parent has acknowledged every frame."""
        return self._frames.first_unacked > self._frames.last_made

    def offer(self, events: Sequence[Event], credit: Credit) -> None:
        """Make the next numbered frame of these events; several if they are too large for one."""
        self._credit = credit
        seq = self._frames.last_made + 1
        data = encode_message(Frame(self._launch.generation, seq, credit, tuple(events)))
        if len(data) > FRAME_BYTES_MAX and len(events) > 1:
            middle = len(events) // 2
            self.offer(events[:middle], credit)
            self.offer(events[middle:], credit)
            return
        self._frames.append(data, self._desk.answered_by(events))

    def announce(self, message: Loading | Ready) -> None:
        """Say this when the parent can hear it; ``Ready`` also after each later ``Welcome``."""
        match message:
            case Loading():
                self._loading = message
            case Ready():
                self._ready, self._ready_due, self._loading = message, True, None
                self._credit = message.credit

    def ignored_by_reason(self) -> dict[str, int]:
        """How many messages changed nothing, for the log."""
        return {**self.ignored.by_reason(), "repeated": self._desk.repeated}

    # --- from the clock ------------------------------------------------------------------------

    def tick(self, now: float) -> Sequence[Orphaned]:
        """Let time pass; says once that the worker has become an orphan."""
        beat = self._pulse.tick(now)
        if self.state is State.ORPHANED:
            return ()
        if self._pulse.orphaned:
            self._move(Happening.SILENCE)
            return (Orphaned(),)
        if beat and self._must_greet_again(now):
            self._left_some = False
            self._move(Happening.UNKNOWN)
        return ()

    @property
    def wake_at(self) -> float:
        """When ``tick`` is to be called at the latest."""
        return self._pulse.wake_at

    def _must_greet_again(self, now: float) -> bool:
        if self.state is State.GREETING:
            patience_s = HELLO_AGAIN_INTERVALS * self._launch.heartbeat_interval_s
            return now - self._greeted_at >= patience_s
        return self._left_some and self._has_room()

    # --- from the parent -----------------------------------------------------------------------

    def receive(self, message: ToWorker, now: float) -> Sequence[Command]:
        """Take one message in; what of it is for the engine."""
        if self.state is State.ORPHANED:
            return _NOTHING
        if message.epoch < self.epoch:
            self.ignored.stale += 1
            return _NOTHING
        if isinstance(message, Welcome | RunJob) and message.store != self._launch.store:
            self.ignored.foreign += 1
            return _NOTHING
        self._pulse.heard()
        match message:
            case Welcome():
                self._welcome(message)
            case Identify():
                self._identify(now)
            case Exit():
                return self._exit(message)
            case _:
                return self._receive_as_known(message, now)
        return _NOTHING

    def _receive_as_known(
        self,
        message: ParentHeartbeat | Ack | Replay | RunJob | BodyPart | Cancel | Preempt | Seal,
        now: float,
    ) -> Sequence[Command]:
        """What only the parent that has welcomed us may say."""
        if message.epoch > self.epoch:
            self._move(Happening.UNKNOWN)
            return _NOTHING
        if self.state is not State.SERVING:
            self.ignored.unexpected += 1
            return _NOTHING
        match message:
            case Ack():
                self._acknowledge(message.seq)
            case ParentHeartbeat():
                self._acknowledge(message.last_seq)
                self._window.compare(message.received)
            case Replay():
                self._window.replay(message.from_seq, now)
            case _:
                return self._command(message)
        return _NOTHING

    def _welcome(self, message: Welcome) -> None:
        known = self._frames.last_made
        if message.generation != self._launch.generation or message.last_seq > known:
            self.ignored.unexpected += 1
            return
        self.epoch = message.epoch
        self._welcomed = True
        self._move(Happening.WELCOMED)
        self._desk.welcomed()
        self._acknowledge(message.last_seq)
        self._window.welcomed(message.last_seq)
        self._ready_due = self._ready is not None

    def _identify(self, now: float) -> None:
        # It comes for each message that was on its way when we greeted: one Hello answers all.
        just_greeted = now - self._greeted_at < self._launch.heartbeat_interval_s
        if self.state is State.GREETING and just_greeted:
            return
        self._move(Happening.UNKNOWN)

    def _exit(self, message: Exit) -> Sequence[Command]:
        if message.generation != self._launch.generation:
            self.ignored.unexpected += 1
            return _NOTHING
        return (message,)

    def _acknowledge(self, seq: int) -> None:
        if seq > self._frames.last_made:
            self.ignored.unexpected += 1
            return
        self._desk.acknowledged(self._frames.drop_through(seq))
        self._window.acknowledged(seq)

    # --- commands ------------------------------------------------------------------------------

    def _command(self, message: RunJob | BodyPart | Cancel | Preempt | Seal) -> Sequence[Command]:
        if not self._has_room():
            self.ignored.no_room += 1
            self._left_some = True
            return _NOTHING
        commands, answers = self._desk.receive(message)
        if answers:
            self.offer(answers, self._credit)
        return commands

    def _has_room(self) -> bool:
        return self._inbox_has_room() and not self._frames.full

    # --- to the parent -------------------------------------------------------------------------

    def outgoing(self) -> Sending | None:
        """What is due now, frames of about ``FRAME_BYTES_MAX`` at most; None when nothing is."""
        match self.state:
            case State.CONNECTING:
                return Sending([encode_message(self._hello())], hello=True)
            case State.GREETING if self._pulse.due:
                return Sending([encode_message(self._heartbeat())], heartbeat=True)
            case State.SERVING:
                return self._serving()
            case _:
                return None

    def sent(self, sending: Sending, now: float) -> None:
        """The socket has taken it."""
        if sending.hello:
            self._move(Happening.HELLO_SENT)
            self._greeted_at = now
        if sending.ready:
            self._ready_due = False
        if sending.heartbeat:
            self._pulse.due = False
        if sending.loading:
            self._loading = None
        if sending.cursor is not None:
            self._window.sent_before(sending.cursor)

    def _serving(self) -> Sending | None:
        messages: list[bytes] = []
        loading = self._loading
        if self._ready_due and self._ready is not None:
            ready = msgspec.structs.replace(self._ready, credit=self._credit)
            messages.append(encode_message(ready))
        if loading is not None:
            messages.append(encode_message(loading))
        if self._pulse.due:
            messages.append(encode_message(self._heartbeat()))
        cursor = self._window.add_to(messages)
        if not messages:
            return None
        return Sending(
            messages,
            cursor,
            ready=self._ready_due,
            heartbeat=self._pulse.due,
            loading=loading is not None,
        )

    def _hello(self) -> Hello:
        return Hello(
            protocol=PROTOCOL_VERSION,
            generation=self._launch.generation,
            pid=self._process.pid,
            pid_started=self._process.pid_started,
            first_unacked=self._frames.first_unacked,
            last_made=self._frames.last_made,
            held=self._desk.held,
            epoch=self.epoch if self._welcomed else 0,
            store=self._launch.store if self._welcomed else StoreId(""),
        )

    def _heartbeat(self) -> Heartbeat:
        vitals = self._vitals
        paused = self.paused and vitals.state == "serving"
        return Heartbeat(
            generation=self._launch.generation,
            last_made=self._frames.last_made,
            last_command=self._desk.highest,
            rows=vitals.rows,
            pending=vitals.pending,
            steps=vitals.steps,
            chunk_s_max=vitals.chunk_s_max,
            state="paused" if paused else vitals.state,
            rss_bytes=self._process.rss_bytes(),
        )

    def _move(self, happening: Happening) -> None:
        self.state = next_state(self.state, happening)
