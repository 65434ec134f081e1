"""One seed, from an empty store to a quiet one that is in order."""

import atexit
import logging
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

import structlog

from app.settings import ServerSettings, Settings, StorageSettings, WorkerSettings
from app.storage.ballast import Ballast
from app.storage.connections import writer_connection
from app.storage.database import DATABASE_NAME, _prepare
from tests.reliability.simulation import oracle
from tests.reliability.simulation.clients import MODEL, Client, whole
from tests.reliability.simulation.faults import FAULTS
from tests.reliability.simulation.machine import DAY_ONE, Machine
from tests.reliability.simulation.reader import ReportReader
from tests.reliability.simulation.scripted import add_model
from tests.reliability.simulation.wishes import WINDOW_S, wishes
from tests.reliability.simulation.world import World

QUIET_S: Final = 3_600.0
"""Virtual time after the last fault within which everything must have ended."""

AFTERWARDS_S: Final = 75.0
"""Virtual time for what is done after the end: compaction."""

COMPACTED: Final = 5
"""One seed of so many waits for that."""

LASTING_S: Final = 26.0
"""Longer than any fault lasts."""

FAULTS_A_SEED: Final = (4, 9)
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where there is none, the usual place


@dataclass(frozen=True)
class Played:
    """What came of a seed."""

    seed: int
    events: int
    hits: Counter[str]
    digest: str


def play(seed: int, *, trace: list[str] | None = None) -> Played:
    """Play one seed.

    Raises:
        AssertionError: something that must hold did not.
    """
    with machine_of(seed, trace) as machine:
        clients = _run(machine.world, machine)
        oracle.assert_in_order(machine.store, clients)
    world = machine.world
    return Played(seed, world.events, world.hits, world.digest)


@contextmanager
def machine_of(seed: int, trace: list[str] | None = None, **worker: Any) -> Generator[Machine]:
    """A machine with an empty store, on which nothing must break. ``worker`` are settings."""
    with _quiet_logs() as errors, _place() as data_dir:
        world = World(seed)
        world.trace = trace
        machine = Machine(world, _settings(world, data_dir, worker))
        try:
            yield machine
        finally:
            machine.bury()
        assert machine.broken == [], machine.broken
        assert errors == [], errors
        world.note("store", *_contents(machine.store))


def _run(world: World, machine: Machine) -> list[Client]:
    chance = world.chance("plan")
    clients = [Client(n, wish, machine) for n, wish in enumerate(wishes(chance))]
    reader = ReportReader(machine)
    for client in clients:
        world.after(client.wish.at_s, client.begin)
        machine.on_up.append(client.parent_up)
    machine.on_up.append(reader.parent_up)
    for _ in range(chance.randint(*FAULTS_A_SEED)):
        fault = FAULTS[chance.choice(sorted(FAULTS))]
        world.after(chance.uniform(0.0, WINDOW_S), lambda fault=fault: fault(machine, chance))
    machine.start_parent()
    world.run(lambda: False, WINDOW_S)
    _heal(world, machine)
    settled = world.run(lambda: _settled(machine, clients), QUIET_S)
    failures = machine.broken + (machine.parent.loop.failures if machine.parent else [])
    assert failures == [], failures
    assert settled, _unsettled(machine, clients)
    if world.seed % COMPACTED == 0:
        world.run(lambda: False, AFTERWARDS_S)
    machine.start_parent()
    assert world.run(lambda: reader.read_all(machine), QUIET_S), "reports were not all read"
    reader.assert_each_once()
    return clients


def _heal(world: World, machine: Machine) -> None:
    """No fault begins any more, and those that last end by themselves within ``LASTING_S``."""
    world.run(lambda: False, LASTING_S)
    machine.disk.dies = None
    machine.disk.broken = False
    machine.wire.lose_next = machine.wire.repeat_next = machine.spawns_fail = 0
    machine.start_parent()


def _settled(machine: Machine, clients: list[Client]) -> bool:
    parent = machine.parent
    if parent is None or not parent.up or parent.product is None:
        return False
    return len(parent.product.ledger) == 0 and all(map(whole, clients))


def _unsettled(machine: Machine, clients: list[Client]) -> str:
    parent = machine.parent
    open_jobs = [] if parent is None or parent.product is None else list(parent.product.ledger)
    left = [client for client in clients if not whole(client)]
    return f"not settled after {QUIET_S:g} s: open {open_jobs}; clients {left}"


# --- the place -----------------------------------------------------------------------------------


def _settings(world: World, data_dir: Path, worker: Mapping[str, Any]) -> Settings:
    chance = world.chance("settings")
    return Settings(
        storage=StorageSettings(data_dir=data_dir, cache_dir=data_dir / "cache"),
        server=ServerSettings(
            cancel_wait_s=1.0, start_timeout_s=20.0, resume_wait_s=20.0, shutdown_grace_s=3.0
        ),
        worker=WorkerSettings(
            engine="scripted",
            scripted='{"step_s":0.05,"prefill_s":0.01,"load_s":0.1}',
            rows=worker.get("rows", chance.randint(1, 3)),
            prefetch=worker.get("prefetch", chance.randint(0, 2)),
            orphan_grace_s=20.0,
            stop_grace_s=3.0,
            restart_limit=1_000,
            restart_window_s=1,
            poison_failed_after=4,
        ),
    )


@lru_cache(maxsize=1)
def _template() -> Path:
    """A data directory with a migrated store, to be copied."""
    root = _MEMORY if _MEMORY.is_dir() else None
    directory = Path(tempfile.mkdtemp(prefix="mlxq-sim-", dir=root))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    data_dir = directory / "template"
    prepared = _prepare(
        data_dir,
        data_dir / DATABASE_NAME,
        DAY_ONE,
        Ballast(data_dir / "ballast", 0),
        writer_connection,
    )
    prepared.lock.release()
    add_model(data_dir, MODEL)
    return data_dir


@contextmanager
def _place() -> Generator[Path]:
    template = _template()
    data_dir = template.with_name("seed")
    shutil.rmtree(data_dir, ignore_errors=True)
    shutil.copytree(template, data_dir)
    try:
        yield data_dir
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


def _contents(path: Path) -> list[str]:
    """Each job's row and report, as far as two runs must agree."""
    with closing(sqlite3.connect(path)) as store:
        rows = store.execute("SELECT id, state, attempt, completion_tokens, events FROM job")
        return ["|".join(map(str, row)) for row in rows]


@contextmanager
def _quiet_logs() -> Generator[list[str]]:
    """Nothing is written; what must never be logged is kept."""
    kept: list[str] = []

    def keep(_logger: Any, _method: str, event: dict[str, Any]) -> Any:
        broken = str(event.get("reason")).startswith(_BROKEN)
        if event.get("event") in _NEVER or (event.get("event") == "worker_lost" and broken):
            kept.append(str(event))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[cast("Any", keep)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        cache_logger_on_first_use=False,
    )
    try:
        yield kept
    finally:
        structlog.configure(**before)


_BROKEN: Final = ("the worker no longer keeps", "frame ", "tokens ", "its process is not")
"""Reasons for a loss that only a fault in the protocol could give."""

_NEVER: Final = frozenset({"task_failed", "job broke the loop", "message broke", "command broke"})
