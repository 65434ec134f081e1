"""A store without threads: the shipped operations through the shipped committer, on a real file.

What the writer's thread does with a line of operations is done here at once, so that thousands of
short histories fit in a minute. A process dies by being forgotten: its connection is closed, and
what it had not committed is gone.
"""

import atexit
import shutil
import sqlite3
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from typing_extensions import override

from app.storage.ballast import Ballast
from app.storage.batching import shared_commit
from app.storage.checkpoints import CheckpointCounts, Checkpoints
from app.storage.committing import CommitCounts, CommitHooks, Committer, Result
from app.storage.connections import writer_connection
from app.storage.database import DATABASE_NAME, _prepare
from app.storage.driver import Driver
from app.storage.feed_mark import FeedMark
from app.storage.identity import next_start
from app.storage.jobs import adopt_stored_jobs
from app.storage.operations import Operation, Params
from app.storage.readers import Readers, Snapshot
from app.storage.verify import verify_file
from tests.integration.storage.making import NOW

SHARED_MAX: Final = 1_000
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where there is none, the usual place
_WAL_BYTES: Final = 1 << 20
_Found = TypeVar("_Found")


class Died(BaseException):
    """The process is gone, in the middle of a commit."""


@lru_cache(maxsize=1)
def template() -> Path:
    """A migrated store, to be copied."""
    root = _MEMORY if _MEMORY.is_dir() else None
    place = Path(tempfile.mkdtemp(prefix="mlxq-bench-", dir=root))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    directory = place / "template"
    prepared = _prepare(
        directory,
        directory / DATABASE_NAME,
        NOW,
        Ballast(directory / "ballast", 0),
        writer_connection,
    )
    prepared.lock.release()
    return directory


class Bench:
    """One store, and the process that has it open. ``dies`` is where the next commit ends it:
    ``before`` or ``after``."""

    def __init__(self, name: str = "bench") -> None:
        directory = template().with_name(name)
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(template(), directory)
        self.path = directory / DATABASE_NAME
        self.dies: str | None = None
        self.commits = 0
        self._open()

    def _open(self) -> None:
        self.driver = writer_connection(self.path)
        hooks = FeedMark(self.path).following(
            CommitHooks(before_commit=self._before, after_commit=self._after)
        )
        self._committer = Committer(self.driver, hooks, CommitCounts())
        wal = self.path.with_name(f"{DATABASE_NAME}-wal")
        self._checkpoints = Checkpoints(self.driver, wal, _WAL_BYTES, CheckpointCounts())
        self.readers = BenchReaders(self.path, self.driver)

    def _before(self, _driver: Driver, _operations: Sequence[Operation]) -> None:
        self._die_if("before")

    def _after(self, _driver: Driver, _operations: Sequence[Operation]) -> None:
        self.commits += 1
        self._die_if("after")

    def _die_if(self, where: str) -> None:
        if self.dies == where:
            self.dies = None
            raise Died

    def commit(self, *operations: Operation) -> list[Result]:
        """Write these in order, as few commits as they fit in; what became of each."""
        line, results = deque(operations), list[Result]()
        while line:
            count = shared_commit(line, SHARED_MAX)
            results += self._committer.commit([line.popleft() for _ in range(count)])
        return results

    def checkpoint(self, *, forget: bool = False) -> None:
        """Empty the log."""
        if forget:
            self._checkpoints.forget()
        self._checkpoints.run()

    def restart(self) -> None:
        """The process dies, and the next one begins as a server does."""
        self.crash()
        next_start(self.driver, self.path)
        self.commit(adopt_stored_jobs())

    def crash(self) -> None:
        """The process dies and the file is opened again."""
        self.driver.close()
        self._open()

    def close(self) -> None:
        """Verify, and throw the store away."""
        self.driver.close()
        try:
            violations = verify_file(self.path).violations
            assert violations == [], violations
        finally:
            shutil.rmtree(self.path.parent, ignore_errors=True)

    def rows(self, sql: str, *params: Any) -> list[Any]:
        """What is stored, read past our own code."""
        return self.driver.execute(sql, params).fetchall()

    def read(self, question: "Coroutine[Any, Any, _Found]") -> _Found:
        """The answer of a shipped reading function, which waits for nothing here."""
        try:
            question.send(None)
        except StopIteration as answer:
            return cast("_Found", answer.value)
        raise AssertionError("a read waited")

    def committed(self, *operations: Operation) -> list[bool] | None:
        """Which of these hold; None when the process died over them."""
        with suppress(Died):
            return [type(result).__name__ == "Committed" for result in self.commit(*operations)]
        return None


class BenchReaders(Readers):
    """The shipped readers on the writer's connection, between commits."""

    def __init__(self, path: Path, driver: sqlite3.Connection) -> None:
        self.path = path
        self.reads = 0
        self._driver = driver

    @asynccontextmanager
    @override
    async def snapshot(self) -> AsyncGenerator[Snapshot]:
        self.reads += 1
        yield self

    @override
    async def rows(self, sql: str, params: Params | None = None) -> Sequence[sqlite3.Row]:
        cursor = self._driver.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(sql, params or {}).fetchall()
