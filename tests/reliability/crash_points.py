"""Every moment at which a process is killed, by name. Whoever adds a step adds its line here.

A point is a place in the shipped code, and a scene (``crash_scenes``) in which it is reached. A
commit has three moments: before it begins, with all its changes made but not committed, and
committed but nobody told. What is sent has two: before it is handed to the socket, and after.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Final, TypeAlias


class Side(StrEnum):
    """Which process dies."""

    PARENT = "parent"
    WORKER = "worker"


class Moment(StrEnum):
    """When, as seen from the step."""

    BEFORE = "before"
    INSIDE = "inside"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Call:
    """A function, as ``module:name``."""

    name: str


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that holds this statement; ``receipt`` for one that writes a worker's receipt."""

    name: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of this type, handed to the parent's socket."""

    name: str


Where: TypeAlias = Call | Commit | Sent


@dataclass(frozen=True, slots=True)
class Point:
    """One line of the list.

    Attributes:
        name: what people call it, without side and moment.
        late: the latest time that it is reached which is surely reached in its scene, from 1.
    """

    side: Side
    scene: str
    moment: Moment
    name: str
    where: Where
    late: int = 1

    @property
    def title(self) -> str:
        """Its full name."""
        return f"{self.side} {self.moment} {self.name} ({self.scene})"


def _commit(scene: str, name: str, statement: str, late: int = 1) -> Iterator[Point]:
    for moment in Moment:
        yield Point(Side.PARENT, scene, moment, name, Commit(statement), late)


def _sent(scene: str, name: str, message: str, late: int = 1) -> Iterator[Point]:
    for moment in (Moment.BEFORE, Moment.AFTER):
        yield Point(Side.PARENT, scene, moment, name, Sent(message), late)


def _call(scene: str, name: str, target: str, late: int = 1) -> Iterator[Point]:
    for moment in (Moment.BEFORE, Moment.AFTER):
        yield Point(Side.PARENT, scene, moment, name, Call(target), late)


def _worker(scene: str, name: str, target: str, late: int = 1) -> Iterator[Point]:
    for moment in (Moment.BEFORE, Moment.AFTER):
        yield Point(Side.WORKER, scene, moment, name, Call(target), late)


_PARENT: Final = chain(
    # A job's life.
    _commit("work", "insert", "job.insert", late=4),
    _commit("work", "claim", "attempt.insert", late=4),
    _sent("work", "send", "RunJob"),
    _commit("work", "accept", "attempt.accept"),
    _commit("work", "fold", "attempt.tokens", late=5),
    _call("work", "show", "app.streams.broadcast:Channel.publish", late=20),
    _call("work", "word of the commit", "app.dispatch.sessions:Session.frame_committed", late=6),
    _sent("work", "send of the ack", "Ack", late=6),
    _commit("work", "ending", "job.end"),
    _call("work", "showing of the ending", "app.services.endings:Endings.show"),
    _commit("work", "compaction", "chunk.drop"),
    # Stopping one.
    _commit("cancel", "cancel", "job.stop"),
    _sent("cancel", "send of the cancel", "Cancel"),
    _commit("cancel", "ending of the cancelled", "job.end"),
    # Waiting for other jobs, and for the clock.
    _commit("waiting", "dependency", "dependency.insert"),
    _commit("waiting", "end of a predecessor", "job.release"),
    _call("waiting", "release", "app.services.returns:Returns.released"),
    _call("waiting", "verdict", "app.services.dependents:Dependents._decide"),
    _commit("firing", "schedule", "schedule.insert"),
    _call("firing", "due", "app.services.timetable:Timetable._due"),
    _commit("firing", "firing", "schedule.fire"),
    # A worker's life.
    _commit("begin", "generation", "generation.insert"),
    _call("begin", "spawn", "app.supervision.processes:spawn"),
    _commit("begin", "pid", "generation.process"),
    _call("begin", "hello", "app.dispatch.sessions:Session._hello"),
    _commit("begin", "readiness", "generation.ready"),
    _call("loss of a child", "reap", "app.supervision.process:WorkerProcess._reap"),
    _call("loss of the adopted", "reap", "app.supervision.adopted:AdoptedProcess._died"),
    _commit("loss", "loss", "generation.lost"),
    _commit("loss", "giving back", "job.give_back"),
    _commit("loss", "grave", "generation.gone"),
    _commit("stop", "closing of the gate", "generation.stop"),
    _commit("stop", "seal", "command.seal"),
    _sent("stop", "send of the seal", "Seal"),
    _commit("stop", "receipt", "receipt"),
    _sent("stop", "signal", "Exit"),
    _commit("stop", "grave of the stopped", "generation.gone"),
    _call("hung", "signal", "app.supervision.process:WorkerProcess.signal"),
    # A drain's.
    _commit("drain", "drain", "drain.insert"),
    _commit("drain", "pre-emption", "command.preempt"),
    _sent("drain", "send of the pre-emption", "Preempt"),
    _commit("drain", "end of the drain", "drain.end"),
    # A webhook's.
    _call("delivery", "post", "app.outbound.posting:Poster.post", late=2),
    _commit("delivery", "delivery", "delivery.record", late=2),
    # Each step of a start, in its order.
    _call("boot", "lock", "app.storage.lock:DirectoryLock.take"),
    _call("boot", "check of the file", "app.storage.schema:check"),
    _call("boot", "counting of the start", "app.storage.database:next_start"),
    _call("boot", "opening of the writer", "app.storage.writer:Writer.start"),
    _call("boot", "binding of the port", "app.main:bind"),
    _call("boot", "run directory", "app.main:prepare_run_dir"),
    _call("boot", "reading of the past", "app.product:past_of"),
    _call("boot", "missing receipts", "app.services.boot:Boot._complete_receipts", late=2),
    _commit("boot", "adoption of stored jobs", "job.adopt_stored"),
    _call("boot", "stops", "app.services.boot:Boot._begin_stops"),
    _call("boot", "taking of a job", "app.services.boot:Boot._take", late=4),
    _call("boot", "watching of a worker", "app.services.boot:Boot._watch"),
    _call("boot", "opening of the socket", "app.dispatch.router:Router.open"),
    _call("boot", "going on", "app.services.boot:Boot.go_on"),
    _call("boot", "announcement", "app.main:_announce"),
    _call("boot", "hello of the adopted", "app.dispatch.sessions:Session._hello"),
    _call("boot", "comparing of accounts", "app.services.adoption:Adoption.folded"),
    _call("boot", "fold of what was missed", "app.services.ingestion:Ingestion.frame"),
)

_WORKER: Final = chain(
    _worker("begin", "loading", "worker.loading:Loader.load"),
    _worker("begin", "welcome", "worker.link.session:WorkerSession._welcome"),
    _worker("begin", "readiness", "worker.link.session:WorkerSession.announce"),
    _worker("work", "taking of the command", "worker.loop:Loop._run_job", late=3),
    _worker("work", "accept", "worker.attempts:Attempts._accept", late=3),
    _worker("work", "step", "worker.loop:Loop._step", late=15),
    _worker("work", "making of a frame", "worker.link.session:WorkerSession.offer", late=15),
    _worker("work", "send", "worker.link.session:WorkerSession.sent", late=10),
    _worker("work", "ack", "worker.link.session:WorkerSession._acknowledge", late=5),
    _worker("work", "ending", "worker.attempts:Attempts._finish"),
    _worker("cancel", "cancel", "worker.attempts:Attempts.asked_to_stop"),
    _worker("stop", "pre-emption", "worker.attempts:Attempts.asked_to_stop"),
    _worker("stop", "seal", "worker.loop:Loop._seal"),
    _worker("stop", "exit", "worker.loop:Loop._leave"),
    _worker("boot", "hello to the next parent", "worker.link.session:WorkerSession._identify"),
    _worker("boot", "welcome by the next parent", "worker.link.session:WorkerSession._welcome"),
)

POINTS: Final[tuple[Point, ...]] = (*_PARENT, *_WORKER)
