"""The ROUTER socket: bytes in, bytes out, nothing decided.

The socket is read with ``add_reader`` on its descriptor and drained without blocking, at most
``MESSAGES_PER_TURN`` a turn of the loop. The descriptor is edge-triggered, so the socket is looked
at again after every send. What waits for one worker in one turn leaves as one list.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog
import zmq

from shared.codec import MalformedFrame, decode_to_parent, encode_message, join_encoded
from shared.limits import FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, SOCKET_HWM_MESSAGES
from shared.messages import ToParent, ToWorker

MESSAGES_PER_TURN: Final = 200
BACKLOG_MESSAGES_MAX: Final = 10_000
"""Messages kept for one worker that does not read; past it the worker counts as unreachable."""

BINDINGS_MAX: Final = 32
"""Times that the socket is bound to its path before the descriptors of the earlier ones are closed,
and every connection with them."""

LINGER_MS: Final = 500
HEARTBEAT_INTERVAL_MS: Final = 1_000
HEARTBEAT_TIMEOUT_MS: Final = 3_000
HANDSHAKE_INTERVAL_MS: Final = 5_000
RETRY_S: Final = 0.01

_PARTS: Final = 2
"""Identity and body; anything else is malformed."""

Identity = bytes
OnMessages = Callable[[Identity, list[ToParent]], None]
OnUnreachable = Callable[[Identity], None]
_log = structlog.get_logger("router")


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _ignore(*_args: object) -> None:
    """Nobody listens yet."""


class Router:
    """The parent's end of every worker's connection.

    Args:
        path: where to bind; a stale file there is replaced.
        is_behind: whether what was received cannot be stored at the moment: then messages stay
            unread, and the socket's own limits hold the workers back.
        context: makes the socket; its own unless given.
    """

    def __init__(
        self,
        path: Path,
        is_behind: Callable[[], bool] = lambda: False,
        context: "zmq.Context[zmq.Socket[bytes]] | None" = None,
    ) -> None:
        self._path = path
        self._endpoint = f"ipc://{path}"
        self._bound: int | None = None
        self._bindings = 0
        self._is_behind = is_behind
        self._on_messages: OnMessages = _ignore
        self._on_unreachable: OnUnreachable = _ignore
        self._context = context or zmq.Context(io_threads=1)
        self._socket = self._context.socket(zmq.ROUTER)
        self._outgoing: dict[Identity, deque[bytes]] = {}
        self._flush_due = False
        self._drain_due = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._descriptor = -1
        self.malformed = 0

    def open(self, on_messages: OnMessages, on_unreachable: OnUnreachable) -> None:
        """Bind and start reading, in the running loop.

        ``on_messages`` is called with (identity, messages) for each message part received;
        ``on_unreachable`` with the identity of a worker that is not connected any more.
        """
        self._on_messages, self._on_unreachable = on_messages, on_unreachable
        socket = self._socket
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        socket.setsockopt(zmq.SNDHWM, SOCKET_HWM_MESSAGES)
        socket.setsockopt(zmq.RCVHWM, SOCKET_HWM_MESSAGES)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_INTERVAL_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TTL, HEARTBEAT_TIMEOUT_MS)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_INTERVAL_MS)
        self._bind()
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self._drain)
        self._drain_later()

    def keep_path(self) -> bool:
        """Bind again if the socket's path was taken away or over; whether it had to.

        Connections that exist are not affected: only who connects next would not find us. For that
        what was bound before is kept, since to unbind it would close them; but only so often.

        Raises:
            OSError: when it cannot be bound there.
        """
        if self._loop is None or _inode(self._path) == self._bound:
            return False
        if self._bindings >= BINDINGS_MAX:
            self._socket.unbind(self._endpoint)
            self._bindings = 0
        self._bind()
        return True

    def _bind(self) -> None:
        try:
            self._socket.bind(self._endpoint)
        except zmq.ZMQError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error
        self._bindings += 1
        self._bound = _inode(self._path)

    @property
    def behind(self) -> bool:
        """Whether messages stay unread at the moment."""
        return self._is_behind()

    def send(self, identity: Identity, messages: Sequence[ToWorker]) -> None:
        """Send these with whatever else leaves for this worker in this turn, in order."""
        waiting = self._outgoing.get(identity)
        if waiting is None:
            waiting = self._outgoing[identity] = deque()
        waiting.extend(map(encode_message, messages))
        if len(waiting) > BACKLOG_MESSAGES_MAX:
            self.forget(identity)
            self._on_unreachable(identity)
        else:
            self._flush_soon()

    def forget(self, identity: Identity) -> None:
        """Drop what still waits for this worker."""
        self._outgoing.pop(identity, None)

    def drain(self) -> None:
        """Take in everything that has arrived, now."""
        while self._receive_some():
            pass

    def close(self) -> None:
        """Send what waits, stop reading, unbind."""
        if self._loop is not None:
            self._flush()
            self._loop.remove_reader(self._descriptor)
            self._loop = None
        self._socket.close()
        self._context.term()

    def _drain(self) -> None:
        self._drain_due = False
        if self._loop is None:
            return
        if self._is_behind():
            self._drain_due = True
            self._loop.call_later(RETRY_S, self._drain)
        elif self._receive_some():
            self._drain_later()

    def _drain_later(self) -> None:
        if not self._drain_due and self._loop is not None:
            self._drain_due = True
            self._loop.call_soon(self._drain)

    def _receive_some(self) -> bool:
        """Take in a bounded number of messages; whether more may be waiting."""
        for _ in range(MESSAGES_PER_TURN):
            try:
                parts = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return False
            self._take(parts)
        return True

    def _take(self, parts: list[bytes]) -> None:
        identity, body = parts[0], parts[-1] if len(parts) == _PARTS else b""
        try:
            messages = decode_to_parent(body)
        except MalformedFrame as error:
            self.malformed += 1
            if self.malformed.bit_count() == 1:  # the 1st, 2nd, 4th, 8th …: a flood fills no disk
                size = sum(map(len, parts))
                _log.warning(
                    "malformed_message", error=str(error)[:200], bytes=size, count=self.malformed
                )
            return
        self._on_messages(identity, messages)

    def _flush_soon(self) -> None:
        if not self._flush_due and self._loop is not None:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        waiting, self._outgoing = self._outgoing, {}
        for identity, messages in waiting.items():
            self._send_now(identity, messages)
        self._drain_later()

    def _send_now(self, identity: Identity, messages: deque[bytes]) -> None:
        while messages:
            part = _next_part(messages)
            try:
                self._socket.send_multipart((identity, join_encoded(part)), zmq.DONTWAIT)
            except zmq.Again:
                messages.extendleft(reversed(part))
                self._keep(identity, messages)
                return
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                self._on_unreachable(identity)
                return

    def _keep(self, identity: Identity, messages: deque[bytes]) -> None:
        """The worker's pipe is full: keep the order, try again shortly."""
        messages.extend(self._outgoing.get(identity, ()))
        self._outgoing[identity] = messages
        if self._loop is not None:
            self._loop.call_later(RETRY_S, self._flush_soon)


def _next_part(messages: deque[bytes]) -> list[bytes]:
    """Take messages from the front that fit in one message part together; at least one."""
    part = [messages.popleft()]
    size = len(part[0])
    while messages and size + len(messages[0]) <= FRAME_BYTES_MAX:
        part.append(messages.popleft())
        size += len(part[-1])
    return part
