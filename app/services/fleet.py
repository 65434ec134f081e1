"""The workers there are: one object per living generation, and how to reach it."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from app.dispatch.sessions import Session
from app.domain.gate import Gate, GateEvent, next_gate
from app.domain.wedged import Engine
from app.domain.worker_state import WorkerEvent, WorkerState, next_worker_state
from app.services.ledger import LiveJob
from app.services.stops import Stop
from app.supervision.process import Process
from shared.ids import CommandId, GenerationId, JobId
from shared.messages import Credit, Hello, Loading, Ready, ToWorker


class Transport(Protocol):
    """What the fleet needs of the socket."""

    def send(self, identity: bytes, messages: Sequence[ToWorker]) -> None:
        """Send these to one worker, in order."""
        ...

    def forget(self, identity: bytes) -> None:
        """Drop what still waits for this worker."""
        ...


@dataclass(slots=True, eq=False)
class Worker:
    """One generation. Times are monotonic seconds.

    ``held`` are the jobs claimed for it that have not ended; ``unseen`` the ``RunJob`` commands
    that its latest credit does not know of yet; ``hello`` its last one, until the accounts were
    compared; ``short_of_rows`` that an interactive job among those it was sent may lack a row;
    ``engine`` how it gets on, by its heartbeats; ``given_up`` that this parent ended it,
    ``loss_stored`` that its loss is committed with its receipt: only then may it be killed,
    ``adopted`` that an earlier one started it; ``stop`` how far its stop has come.
    """

    generation: GenerationId
    model: str
    session: Session
    log_path: Path
    created_at: float
    state: WorkerState = WorkerState.STARTING
    gate: Gate = Gate.LOADING
    stop: Stop | None = None
    process: Process | None = None
    given_up: bool = False
    loss_stored: bool = False
    adopted: bool = False
    identity: bytes | None = None
    loading: Loading | None = None
    hello: Hello | None = None
    ready: Ready | None = None
    engine: Engine = field(default_factory=Engine)
    credit: Credit | None = None
    unseen: deque[CommandId] = field(default_factory=deque[CommandId])
    held: dict[JobId, LiveJob] = field(default_factory=dict[JobId, LiveJob])
    short_of_rows: bool = False

    def let_go(self, live: LiveJob) -> None:
        """The worker does not hold this job, whatever became of its command."""
        self.held.pop(live.id, None)
        if live.run_command is not None and live.run_command in self.unseen:
            self.unseen.remove(live.run_command)

    def move(self, event: WorkerEvent) -> None:
        """Take the next state; the gate moves with it.

        Raises:
            IllegalWorkerTransition: when the table has no such move.
            GateRefused: when the gate's has none.
        """
        state, moved = next_worker_state(self.state, event), _GATE_EVENTS.get(event)
        self.gate = self.gate if moved is None else next_gate(self.gate, moved)
        self.state = state

    @property
    def rows_free(self) -> int:
        """Jobs that can be sent now."""
        if not self.gate.admits or self.credit is None:
            return 0
        return max(0, self.credit.rows_free - len(self.unseen))

    def credited(self, credit: Credit) -> None:
        """The worker said how much room it has, as of the last command it saw."""
        self.credit = credit
        while self.unseen and self.unseen[0] <= credit.last_command:
            self.unseen.popleft()


_GATE_EVENTS = {
    WorkerEvent.READY: GateEvent.LOADED,
    WorkerEvent.STOP: GateEvent.STOP,
    WorkerEvent.LOSE: GateEvent.FAIL,
}


class Fleet:
    """Workers by generation, connection and model. At most one a model that is not going."""

    def __init__(self) -> None:
        self._by_generation: dict[GenerationId, Worker] = {}
        self._by_identity: dict[bytes, Worker] = {}
        self.transport: Transport | None = None
        self.empty = asyncio.Event()
        self.empty.set()

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self._by_generation.values()))

    def __len__(self) -> int:
        return len(self._by_generation)

    def all(self) -> Iterable[Worker]:
        """The workers, for a look at each that adds and removes none."""
        return self._by_generation.values()

    def add(self, worker: Worker) -> None:
        """A generation was started."""
        self._by_generation[worker.generation] = worker
        self.empty.clear()

    def get(self, generation: GenerationId) -> Worker | None:
        """The worker of this generation, while it lives."""
        return self._by_generation.get(generation)

    def at(self, identity: bytes) -> Worker | None:
        """The worker on this connection."""
        return self._by_identity.get(identity)

    def connect(self, worker: Worker, identity: bytes) -> None:
        """The worker said ``Hello`` on this connection; an earlier one is forgotten."""
        self.disconnect(worker)
        worker.identity = identity
        self._by_identity[identity] = worker

    def disconnect(self, worker: Worker) -> None:
        """The worker's connection is gone; it may come back on another."""
        if worker.identity is None:
            return
        self._by_identity.pop(worker.identity, None)
        if self.transport is not None:
            self.transport.forget(worker.identity)
        worker.identity = None

    def remove(self, worker: Worker) -> None:
        """The generation is over."""
        self.disconnect(worker)
        self._by_generation.pop(worker.generation, None)
        if not self._by_generation:
            self.empty.set()

    def serving(self, model: str) -> Worker | None:
        """The worker that runs this model now or will once it is loaded."""
        for worker in self._by_generation.values():
            if worker.model == model and worker.state in _SERVING:
                return worker
        return None

    def is_ready(self, model: str) -> bool:
        """Whether a worker of this model takes jobs now."""
        worker = self.serving(model)
        return worker is not None and worker.state is WorkerState.READY

    def send(self, worker: Worker, messages: Sequence[ToWorker]) -> None:
        """Send these to a worker, if it is connected; else it will ask again when it is."""
        if worker.identity is not None and self.transport is not None:
            self.transport.send(worker.identity, messages)


_SERVING = frozenset({WorkerState.STARTING, WorkerState.READY})
