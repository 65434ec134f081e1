"""The thread that owns the ZeroMQ socket: the only one that touches it.

Other threads leave what they have to say in a deque and ring a doorbell that the thread polls
beside the socket, so a frame leaves at once and no receive is ever cancelled or timed out. Each
round takes everything that waits on either side, and sends what waits together as one message part.

The context is made in the thread and nothing forks after it.
"""

import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
import zmq

from shared.codec import MalformedFrame, decode_to_worker, join_encoded
from shared.launch import EXIT_ORPHANED, LaunchRecord
from shared.limits import MESSAGE_BYTES_MAX, SOCKET_HWM_MESSAGES
from shared.messages import Credit, Event, Loading, Ready
from worker.inbox import Inbox, Resumed, ToLoop
from worker.link.doorbell import Doorbell
from worker.link.session import WorkerSession

OFFERS_MAX: Final = 64
"""Offers that may wait for the thread before the engine pauses."""

PARTS_PER_ROUND_MAX: Final = 64
"""Message parts read before what they caused is sent."""

ZMTP_HEARTBEAT_MS: Final = 1_000
ZMTP_TIMEOUT_MS: Final = 3_000
RECONNECT_MS: Final = 100
RECONNECT_MS_MAX: Final = 1_000
LINGER_MS: Final = 500

ORPHAN_EXIT_S: Final = 10.0
"""An orphan whose engine thread has not left after so long leaves from here: nobody else is there
to end a process that hangs."""

_OPTIONS: Final[tuple[tuple[int, int], ...]] = (
    (zmq.IMMEDIATE, 1),  # nothing is queued into a connection that does not stand yet
    (zmq.SNDHWM, SOCKET_HWM_MESSAGES),
    (zmq.RCVHWM, SOCKET_HWM_MESSAGES),
    (zmq.LINGER, LINGER_MS),
    (zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX),
    (zmq.HEARTBEAT_IVL, ZMTP_HEARTBEAT_MS),
    (zmq.HEARTBEAT_TIMEOUT, ZMTP_TIMEOUT_MS),
    (zmq.HEARTBEAT_TTL, ZMTP_TIMEOUT_MS),
    (zmq.RECONNECT_IVL, RECONNECT_MS),
    (zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX),
)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Offer:
    events: Sequence[Event]
    credit: Credit


class Link:
    """The worker's connection to whichever parent is at the endpoint.

    ``start``, ``offer``, ``announce``, ``may_step``, ``ask_for_resumed`` and ``close`` are for the
    engine thread; what the parent says goes to the inbox.
    """

    def __init__(
        self,
        launch: LaunchRecord,
        session: WorkerSession,
        inbox: Inbox,
        clock: Callable[[], float] = time.monotonic,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._endpoint = launch.endpoint
        self._clock = clock
        self._leave = leave
        # Unique per process start: a ROUTER takes two peers of one identity for one.
        self._identity = f"{launch.generation}.{secrets.token_hex(4)}".encode()
        self._session = session
        self._inbox = inbox
        self._outbox: deque[_Offer | Loading | Ready] = deque()
        self._doorbell = Doorbell()
        self._resumed_wanted = False
        self._close_by: float | None = None
        self._malformed = 0
        self._blocked = False
        self._leave_by: float | None = None
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)

    # --- for the engine thread -----------------------------------------------------------------

    def start(self) -> None:
        """Connect and greet."""
        self._thread.start()

    def offer(self, events: Sequence[Event], credit: Credit) -> None:
        """Send these as the next frame. Never blocks; see ``may_step``."""
        self._outbox.append(_Offer(events, credit))
        self._doorbell.ring()

    def announce(self, message: Loading | Ready) -> None:
        """Say this, unnumbered."""
        self._outbox.append(message)
        self._doorbell.ring()

    @property
    def may_step(self) -> bool:
        """Whether there is room for the events of another engine step."""
        return not self._session.paused and len(self._outbox) < OFFERS_MAX

    def ask_for_resumed(self) -> bool:
        """Ask for ``Resumed`` in the inbox once there is room; False when there is already."""
        self._resumed_wanted = True
        # Asked after the wish is set: room made in between would else be told to nobody.
        if self.may_step:
            self._resumed_wanted = False
            return False
        return True

    def close(self, timeout_s: float) -> None:
        """Wait until the parent has acknowledged all frames, at most so long, and disconnect."""
        self._close_by = self._clock() + timeout_s
        self._doorbell.ring()
        self._thread.join(timeout_s + 2 * LINGER_MS / 1000)

    # --- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.IDENTITY, self._identity)
            for option, value in _OPTIONS:
                socket.setsockopt(option, value)
            socket.connect(self._endpoint)
            poller = zmq.Poller()
            poller.register(self._doorbell.fileno(), zmq.POLLIN)
            while not self._done():
                self._round(socket, poller)
            self._tell_end()

    def _tell_end(self) -> None:
        ignored = {**self._session.ignored_by_reason(), "malformed": self._malformed}
        log.info("link closed", flushed=self._session.flushed, **ignored)

    def _round(self, socket: zmq.Socket[bytes], poller: zmq.Poller) -> None:
        poller.register(socket, zmq.POLLIN | (zmq.POLLOUT if self._blocked else 0))
        ready = dict(poller.poll(self._patience_ms()))
        if self._doorbell.fileno() in ready:
            self._doorbell.silence()
        self._exchange(socket, readable=socket in ready)

    def _exchange(self, socket: zmq.Socket[bytes], *, readable: bool) -> None:
        """Take in what waits on both sides, let time pass, send what is due."""
        self._blocked = False
        self._drain_outbox()
        if readable:
            self._drain_socket(socket)
        self._tick(self._clock())
        self._send_due(socket)
        if self._resumed_wanted and self.may_step:
            self._resumed_wanted = False
            self._inbox.put((Resumed(),))

    def _tick(self, now: float) -> None:
        orphaned = self._session.tick(now)
        if orphaned:
            self._leave_by = now + ORPHAN_EXIT_S
            self._inbox.put(orphaned)
        if self._leave_by is not None and now >= self._leave_by:
            log.error("the engine thread does not leave")
            self._leave(EXIT_ORPHANED)

    def _done(self) -> bool:
        if self._close_by is None:
            return False
        return self._clock() >= self._close_by or (not self._outbox and self._session.flushed)

    def _patience_ms(self) -> int:
        wake_at = self._session.wake_at
        if self._close_by is not None:
            wake_at = min(wake_at, self._close_by)
        return max(0, int((wake_at - self._clock()) * 1000) + 1)

    def _drain_outbox(self) -> None:
        while self._outbox:
            said = self._outbox.popleft()
            if isinstance(said, _Offer):
                self._session.offer(said.events, said.credit)
            else:
                self._session.announce(said)

    def _drain_socket(self, socket: zmq.Socket[bytes]) -> None:
        for _ in range(PARTS_PER_ROUND_MAX):
            try:
                part = socket.recv(zmq.DONTWAIT)
            except zmq.Again:
                return
            self._receive(part)

    def _receive(self, part: bytes) -> None:
        try:
            messages = decode_to_worker(part)
        except MalformedFrame as error:
            self._malformed += 1
            if self._malformed == 1:
                log.warning("malformed message from the parent", reason=str(error))
            return
        now = self._clock()
        deliver: list[ToLoop] = []
        for message in messages:
            deliver.extend(self._session.receive(message, now))
        if deliver:
            self._inbox.put(deliver)

    def _send_due(self, socket: zmq.Socket[bytes]) -> None:
        while (sending := self._session.outgoing()) is not None:
            try:
                socket.send(join_encoded(sending.messages), zmq.DONTWAIT)
            except zmq.Again:
                self._blocked = True
                return
            self._session.sent(sending, self._clock())
