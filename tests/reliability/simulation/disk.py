"""The store in a simulation: the shipped writer, committer and schema on a real SQLite file.

The writer's thread is stepped: each commit is an act. What a disk may do is done around it: be
slow, be full, be busy, break; and the parent may die in the middle of a commit.
"""

import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from app.domain.job import JobState
from app.domain.transitions import TRANSITIONS, JobEvent
from app.storage.committing import CommitHooks
from app.storage.driver import Driver
from app.storage.operations import Operation, Params
from app.storage.readers import Readers, Snapshot
from tests.reliability.simulation.world import ParentDied, World

_STATE: Final = "SELECT state, failure ->> 0, events FROM job WHERE id = ?"
_COMMANDS: Final = (
    "SELECT id FROM command WHERE id > ?1 UNION ALL SELECT command FROM attempt WHERE command > ?1"
)
_FRAMES: Final = "SELECT id, last_seq FROM generation"

FAST_S: Final = 0.000_3


class Disk:
    """What befalls commits and reads.

    Attributes:
        full: nothing can be written.
        busy: commits that find the file busy, still to come.
        broken: the next commit meets an error of the file itself.
        slow_s: up to so long is added to each commit and read.
        dies: where in the next commit the parent dies.
        committed: operations so far, by name.
        commands: every command that was ever committed; ``frames`` the last one of each
            generation; ``events`` the next event number of each job.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._chance = world.chance("disk")
        self.full = False
        self.busy = 0
        self.broken = False
        self.slow_s = 0.0
        self.dies: str | None = None
        self.committed: Counter[str] = Counter()
        self.commands: set[int] = set()
        self.frames: dict[str, int] = {}
        self.events: dict[str, int] = {}
        self._states: dict[str, str] = {}

    def takes_s(self) -> float:
        """How long the next commit or read takes."""
        return FAST_S + self._chance.random() * (self.slow_s or FAST_S)

    @property
    def hooks(self) -> CommitHooks:
        """To be called around each commit."""
        return CommitHooks(
            before_begin=self._before_begin,
            before_commit=self._before_commit,
            after_commit=self._after_commit,
        )

    def _before_begin(self, _driver: Driver, operations: Sequence[Operation]) -> None:
        if self.full and operations:
            raise _error("database or disk is full", sqlite3.SQLITE_FULL)
        if self.busy:
            self.busy -= 1
            raise _error("database is locked", sqlite3.SQLITE_BUSY)
        if self.broken:
            self.broken = False
            self.world.hit("fault disk breaks")
            raise _error("disk I/O error", sqlite3.SQLITE_IOERR)

    def _before_commit(self, _driver: Driver, _operations: Sequence[Operation]) -> None:
        self._die_if("before commit")

    def _after_commit(self, driver: Driver, operations: Sequence[Operation]) -> None:
        names = [operation.name for operation in operations]
        self.committed.update(names)
        self.world.note("commit", *names)
        self._watch(driver, operations)
        self._die_if("after commit")

    def _die_if(self, where: str) -> None:
        if self.dies == where:
            self.dies = None
            self.world.hit(f"fault parent dies {where}")
            raise ParentDied

    def _watch(self, driver: Driver, operations: Sequence[Operation]) -> None:
        """Each move of a job must be one that the table has; and what may be told from now on."""
        newest = max(self.commands, default=0)
        self.commands.update(id_ for (id_,) in driver.execute(_COMMANDS, (newest,)).fetchall())
        self.frames.update(driver.execute(_FRAMES).fetchall())
        jobs = sorted({s for op in operations for s in op.subjects if s.startswith("job_")})
        for job in jobs:
            row = driver.execute(_STATE, (job,)).fetchone()
            if row is None:
                continue
            before, (after, code, self.events[job]) = self._states.get(job), row
            self._states[job] = after
            if before is not None and before != after:
                self._moved(JobState(before), JobState(after), code)

    def _moved(self, before: JobState, after: JobState, code: str | None) -> None:
        events = [e for e, to in TRANSITIONS[before].items() if to is after]
        assert events, f"a job went from {before} to {after}"
        event = events[0]
        if after is JobState.FAILED:
            event = JobEvent.EXPIRE if code == "deadline_exceeded" else JobEvent.FAIL
        self.world.hit(f"transition {before} {event}")


def _error(text: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


class _Connection:
    """A reader's connection without a thread."""

    def __init__(self, path: Path) -> None:
        self.driver = sqlite3.connect(path, isolation_level=None)
        self.driver.row_factory = sqlite3.Row

    async def rows(self, sql: str, params: Params, /) -> Sequence[sqlite3.Row]:
        return self.driver.execute(sql, params).fetchall()


class SimReaders(Readers):
    """The shipped readers without their threads: a read takes its time, and sees one moment."""

    def __init__(self, disk: Disk, path: Path, sleep: Callable[[float], Any]) -> None:
        self.path = path
        self.reads = 0
        self._disk = disk
        self._sleep = sleep
        self._unused: list[_Connection] = []
        self._used: set[_Connection] = set()

    @asynccontextmanager
    @override
    async def snapshot(self) -> AsyncGenerator[Snapshot]:
        self.reads += 1
        await self._sleep(self._disk.takes_s())
        connection = self._unused.pop() if self._unused else _Connection(self.path)
        self._used.add(connection)
        connection.driver.execute("BEGIN")
        try:
            yield connection
        finally:
            if connection in self._used:
                self._used.discard(connection)
                connection.driver.execute("ROLLBACK")
                self._unused.append(connection)

    @override
    async def rows(self, sql: str, params: Params | None = None) -> Sequence[sqlite3.Row]:
        async with self.snapshot() as snapshot:
            return await snapshot.rows(sql, params or {})

    @override
    async def close(self) -> None:
        self.crash()

    def crash(self) -> None:
        """Its process is gone."""
        for connection in (*self._used, *self._unused):
            connection.driver.close()
        self._used.clear()
        self._unused.clear()
