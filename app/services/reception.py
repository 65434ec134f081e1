"""What a worker says, brought to whoever acts on it.

Connections are nameless until a ``Hello`` names a generation that this parent started. Anything
else on an unknown connection is answered with ``Identify``; a ``Hello`` of a generation that is not
ours (an earlier parent's, or one declared lost) is told to exit.
"""

from collections.abc import Callable

import structlog

from app.dispatch.sessions import (
    BecameReady,
    Broken,
    Effect,
    FrameReceived,
    Greeted,
    LoadProgress,
    Send,
    SessionState,
)
from app.services.clock import Clock
from app.services.fleet import Fleet, Transport, Worker
from app.services.ingestion import Ingestion
from shared.messages import Exit, Hello, Identify, Ready, ToParent

_log = structlog.get_logger("reception")


class Reception:
    """Hands messages to sessions, and what sessions decide to services."""

    def __init__(
        self,
        fleet: Fleet,
        transport: Transport,
        ingestion: Ingestion,
        clock: Clock,
        epoch: int,
        on_ready: Callable[[Worker, Ready], None],
        on_broken: Callable[[Worker, str], None],
        on_greeted: Callable[[Worker, Hello], None],
    ) -> None:
        self._fleet = fleet
        self._transport = transport
        self._ingestion = ingestion
        self._clock = clock
        self._epoch = epoch
        self._on_ready = on_ready
        self._on_broken = on_broken
        self._on_greeted = on_greeted
        self.strangers = 0

    def messages(self, identity: bytes, messages: list[ToParent]) -> None:
        """Take in what arrived on this connection."""
        now = self._clock.monotonic()
        for message in messages:
            worker = self._worker(identity, message)
            if worker is None:
                continue
            for effect in worker.session.receive(message, now):
                self._act(worker, effect)

    def unreachable(self, identity: bytes) -> None:
        """The connection is gone. The worker may come back on a new one."""
        worker = self._fleet.at(identity)
        if worker is not None:
            _log.info("worker_disconnected", generation=worker.generation)
            self._fleet.disconnect(worker)

    def _worker(self, identity: bytes, message: ToParent) -> Worker | None:
        if isinstance(message, Hello):
            return self._greet(identity, message)
        worker = self._fleet.at(identity)
        if worker is None:
            self._transport.send(identity, [Identify(self._epoch)])
        elif worker.generation != message.generation:
            self.strangers += 1
            return None
        return worker

    def _greet(self, identity: bytes, hello: Hello) -> Worker | None:
        worker = self._fleet.get(hello.generation)
        if worker is None or worker.session.state is SessionState.CLOSED:
            self.strangers += 1
            _log.info("stranger_told_to_exit", generation=hello.generation, pid=hello.pid)
            exit_ = Exit(self._epoch, hello.generation, "this server does not know this worker")
            self._transport.send(identity, [exit_])
            return None
        self._fleet.connect(worker, identity)
        return worker

    def _act(self, worker: Worker, effect: Effect) -> None:
        match effect:
            case FrameReceived():
                self._ingestion.frame(worker, effect.frame)
            case Send():
                self._fleet.send(worker, effect.messages)
            case BecameReady():
                self._on_ready(worker, effect.ready)
            case LoadProgress():
                worker.loading = effect.loading
            case Greeted():
                _log.info("worker_greeted", generation=worker.generation, pid=effect.hello.pid)
                self._on_greeted(worker, effect.hello)
            case Broken():
                self._on_broken(worker, effect.reason)
