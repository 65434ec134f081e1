"""The machine of a simulation: clock, disk, processes, and the parents that come and go.

A parent is rebuilt from the store alone. One that dies leaves its workers, whose frames wait; what
it held of the operating system (locks, connections, the socket) goes with it.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from app.dispatch.router import Router
from app.domain.errors import JobServerError
from app.product import Product, assemble
from app.services.draining import Draining, Mode
from app.services.outside import Outside
from app.settings import Settings
from app.storage.database import DATABASE_NAME, Database
from app.storage.errors import StoreError
from app.supervision.process import Exit
from shared.codec import decode_to_worker
from shared.messages import Ack, Cancel, ParentHeartbeat, Preempt, RunJob, Seal, ToWorker, Welcome
from tests.reliability.simulation.disk import Disk, SimReaders
from tests.reliability.simulation.disk_thread import SteppedThread, stepping
from tests.reliability.simulation.virtual_loop import VirtualLoop
from tests.reliability.simulation.wire import Wire
from tests.reliability.simulation.worker_process import SimWorker
from tests.reliability.simulation.world import ParentDied, World

DAY_ONE: Final = datetime(2026, 1, 1, tzinfo=UTC)
REAP_S: Final = 0.001
FIRST_PID: Final = 100


class SimClock:
    """The machine's two clocks: one may jump."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ahead = timedelta()

    def now(self) -> datetime:
        return DAY_ONE + timedelta(seconds=self._world.now) + self.ahead

    def monotonic(self) -> float:
        return self._world.now


class Handle:
    """A parent's view of one process."""

    def __init__(self, worker: SimWorker) -> None:
        self._worker = worker

    @property
    def pid(self) -> int:
        return self._worker.pid

    def signal(self, number: signal.Signals) -> None:
        if number is signal.SIGKILL:
            self._worker.world.after(0.0, self._worker.kill)
        else:
            self._worker.world.after(0.0, self._worker.terminate)


class SimProcesses:
    """One parent's ``Processes``."""

    def __init__(self, machine: "Machine", loop: VirtualLoop) -> None:
        self._machine = machine
        self._loop = loop

    def spawn(
        self,
        arguments: Sequence[str],
        launch: bytes,
        log_path: Path,
        environment: Mapping[str, str],
        on_exit: Callable[[Exit], None],
    ) -> Handle:
        if self._machine.spawns_fail:
            self._machine.spawns_fail -= 1
            self._machine.world.hit("fault spawn fails")
            raise OSError("no more processes")
        worker = self._machine.start_worker(launch, environment["MLXQ_WORKER_HOME"])
        self._watch(worker, on_exit, own=True)
        return Handle(worker)

    def adopt(
        self, pid: int, started: int, home: str, on_exit: Callable[[Exit], None]
    ) -> Handle | None:
        worker = self._machine.workers.get(pid)
        if worker is None or worker.started != started or worker.home != home:
            return None
        self._watch(worker, on_exit, own=False)
        return Handle(worker)

    def started(self, pid: int) -> int | None:
        worker = self._machine.workers.get(pid)
        return worker.started if worker is not None else None

    def _watch(self, worker: SimWorker, on_exit: Callable[[Exit], None], *, own: bool) -> None:
        def ended(code: int) -> None:
            exit_ = Exit()
            if own:
                exit_ = Exit(signal_number=-code) if code < 0 else Exit(code=code)
            self._loop.call_soon(on_exit, exit_)

        self._machine.watch(worker.pid, ended)


class Parent:
    """One parent process, from its first line to its end."""

    def __init__(self, machine: "Machine") -> None:
        self.machine = machine
        self.loop = VirtualLoop(machine.world)
        self.alive = True
        self.product: Product | None = None
        self.up = False
        self.ended = False
        self._thread: type[SteppedThread] = stepping(machine.disk)
        self._readers: list[SimReaders] = []
        self._database: Database | None = None
        self._task = self.loop.create_task(self._serve())
        self._task.add_done_callback(self._served)

    def due(self) -> float | None:
        """For the world."""
        return self.loop.due()

    def run_one(self) -> None:
        """For the world."""
        self.loop.run_one()

    def spawn(self, work: Any) -> None:
        """Run a client's part beside the services; gone with the parent."""
        task = self.loop.create_task(work)
        task.add_done_callback(_raise)

    async def _serve(self) -> None:
        machine = self.machine
        self._database = await Database.open(
            machine.settings.storage.data_dir,
            hooks=machine.disk.hooks,
            thread=self._thread,
            readers=self._make_readers,
            on_fatal=self._broke,
            now=machine.clock.now,
        )
        outside = Outside(
            processes=SimProcesses(machine, self.loop),
            router=lambda path, behind: Router(path, behind, machine.wire.router(self.loop)),
            entropy=machine.entropy.randbytes,
            draw=machine.entropy.random,
        )
        self.product = await assemble(
            machine.settings, self._database, Path("w.sock"), machine.clock, "sim", outside
        )
        await self.product.start()
        self.up = True
        machine.parent_up(self)

    async def stop(self) -> None:
        """As SIGTERM."""
        if self.product is None:
            return
        self.up = False
        await self.product.settle()
        await self.product.stop()
        self.ended = True

    def _make_readers(self, path: Path) -> SimReaders:
        readers = SimReaders(self.machine.disk, path, asyncio.sleep)
        self._readers.append(readers)
        return readers

    def _broke(self, _error: Exception) -> None:
        """As the server does: nothing may be promised any more."""
        raise ParentDied

    def _served(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None and self.alive:
            self.machine.broken.append(f"the parent did not start: {error!r}")

    def die(self) -> None:
        """SIGKILL: nothing of it runs any more, and what the system kept for it is given back."""
        self.alive = self.up = False
        for thread in self._thread.made:
            thread.crash()
        for readers in self._readers:
            readers.crash()
        if self._database is not None:
            self._database._lock.release()
        if self.product is not None:
            self.product.router._socket.close()
        self.machine.broken += self.loop.failures


def _raise(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


class Machine:
    """Everything that outlives a parent.

    Attributes:
        broken: what must never happen and did.
        on_up: called with each parent once it serves.
    """

    def __init__(self, world: World, settings: Settings) -> None:
        self.world = world
        self.settings = settings
        self.clock = SimClock(world)
        self.disk = Disk(world)
        self.wire = Wire(world)
        self.entropy = world.chance("entropy")
        self.workers: dict[int, SimWorker] = {}
        self.spawns_fail = 0
        self.broken: list[str] = []
        self.on_up: list[Callable[[Parent], None]] = []
        self.on_down: list[Callable[[], None]] = []
        self.parent: Parent | None = None
        self.graves: list[Parent] = []
        self._watchers: dict[int, list[tuple[Parent | None, Callable[[int], None]]]] = {}
        self._pids = FIRST_PID
        world.on_parent_died = self.kill_parent
        self.wire.on_told = self._told

    @property
    def store(self) -> Path:
        """The database's file."""
        return self.settings.storage.data_dir / DATABASE_NAME

    # --- parents -------------------------------------------------------------------------------

    def start_parent(self) -> None:
        """Start one, unless one is there."""
        if self.parent is None:
            self.parent = self.world.parent = Parent(self)

    def kill_parent(self) -> None:
        """SIGKILL to the parent."""
        parent, self.parent, self.world.parent = self.parent, None, None
        if parent is not None:
            self.world.note("parent dies")
            self.graves.append(parent)
            parent.die()
            for told in self.on_down:
                told()

    def stop_parent(self) -> None:
        """SIGSTOP."""
        self.world.parent = None

    def go_on_parent(self) -> None:
        """SIGCONT."""
        self.world.parent = self.parent

    def parent_up(self, parent: Parent) -> None:
        """It serves."""
        self.world.note("parent up")
        for told in self.on_up:
            told(parent)

    def bury(self) -> None:
        """At the end: what is left of all processes, without a word from any of it."""
        for worker in list(self.workers.values()):
            worker.kill()
        self.kill_parent()
        for parent in self.graves:
            parent.loop.bury()

    async def drain(self, draining: Draining, mode: Mode, wait_s: float) -> None:
        """Close dispatch, and open it again after a while."""
        with suppress(JobServerError, StoreError):
            await draining.start(mode, wait_s)
            await asyncio.sleep(wait_s)
            await draining.resume()

    # --- workers -------------------------------------------------------------------------------

    def start_worker(self, launch: bytes, home: str) -> SimWorker:
        """A new process."""
        self._pids += 1
        worker = SimWorker(self.world, self.wire, self._pids, launch, home, self._ended)
        self.workers[worker.pid] = worker
        return worker

    def watch(self, pid: int, ended: Callable[[int], None]) -> None:
        """Tell the present parent of its death."""
        self._watchers.setdefault(pid, []).append((self.parent, ended))

    def _told(self, identity: bytes, part: bytes) -> None:
        """What a parent tells a worker must be committed: commands, and that frames are."""
        generation = identity.decode().rpartition(".")[0]
        stored = self.disk.frames.get(generation, 0)
        for message in decode_to_worker(part):
            if isinstance(message, Cancel | Preempt | RunJob | Seal):
                if message.command and message.command not in self.disk.commands:
                    self.broken.append(f"sent before its commit: {message}")
            elif _covers(message) > stored:
                self.broken.append(f"{generation}: {stored} are stored, told {message}")

    def _ended(self, worker: SimWorker, code: int) -> None:
        self.workers.pop(worker.pid, None)
        watchers = self._watchers.pop(worker.pid, [])

        def tell() -> None:
            for parent, ended in watchers:
                if parent is not None and parent.alive:
                    ended(code)

        self.world.after(REAP_S, tell)


def _covers(message: ToWorker) -> int:
    """Up to which frame the worker may forget what it keeps, by this."""
    match message:
        case Ack():
            return message.seq
        case Welcome() | ParentHeartbeat():
            return message.last_seq
        case _:
            return 0
