"""The writer's thread: takes lists of operations, commits them, says what became of each."""

import sqlite3
import threading
from asyncio import Future
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias

from app.storage.batching import shared_commit
from app.storage.checkpoints import CheckpointCounts, Checkpoints
from app.storage.committing import CommitCounts, CommitHooks, Committer
from app.storage.driver import Driver
from app.storage.errors import StoreError, StoreFull, Trouble, trouble
from app.storage.limits import WriterLimits
from app.storage.operations import Operation, Outcome, Rank, Statement, Step

_PROBE: Final = Operation(
    name="probe",
    subjects=(),
    steps=(Step(Statement("feed.touch", Rank.META, "UPDATE feed SET last = last"), {}),),
)
"""Changes nothing, but must be written."""


@dataclass(slots=True, eq=False)
class Pending:
    """An operation and who waits for it."""

    operation: Operation
    future: Future[Outcome]


Done: TypeAlias = Sequence[tuple[Pending, Outcome | StoreError]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadEvents:
    """What the thread tells; called in the thread."""

    done: Callable[[Done, bool], None]
    """What became of these; True when nothing is left in the thread."""
    full: Callable[[bool], None]
    """The disk is full, or no longer."""
    failed: Callable[[Exception], None]
    """The thread has ended on this error; ``left`` says what it has not told of."""


@dataclass(slots=True)
class WriterCounts:
    """Cumulative since the start, except for the log's size. Written by the thread, read by
    anyone."""

    committed: CommitCounts = field(default_factory=CommitCounts)
    log: CheckpointCounts = field(default_factory=CheckpointCounts)
    retries: int = 0


class _ClosedWhileFull(Exception):
    """The writer was closed and the disk is still full."""


class WriterThread:
    """Runs until ``end`` or a fatal error; ``ended`` is then done."""

    def __init__(
        self,
        connect: Callable[[], Driver],
        wal_path: Path,
        limits: WriterLimits,
        hooks: CommitHooks,
        events: ThreadEvents,
    ) -> None:
        self._connect = connect
        self._wal_path = wal_path
        self._limits = limits
        self._hooks = hooks
        self._events = events
        self._queue: SimpleQueue[list[Pending] | None] = SimpleQueue()
        self._line: deque[Pending] = deque()
        self._hurry = threading.Event()
        self._full = False
        self._retry_s = limits.retry_first_s
        self._opened: ThreadFuture[None] = ThreadFuture()
        self.ended: ThreadFuture[None] = ThreadFuture()
        self.counts = WriterCounts()

    def start(self) -> "ThreadFuture[None]":
        """Start; the result is there once the connection is open."""
        threading.Thread(target=self._run, name="store-writer", daemon=True).start()
        return self._opened

    def put(self, line: list[Pending]) -> None:
        """Commit these. Called only when the thread has nothing left."""
        self._queue.put(line)

    def hurry(self) -> None:
        """The writer is closing: do not wait for a full disk any more."""
        self._hurry.set()

    def end(self) -> None:
        """Close the connection and end, after what was put."""
        self._queue.put(None)

    def left(self) -> list[Pending]:
        """After ``failed``: what was put and never told of, also what came too late."""
        left = list(self._line)
        while not self._queue.empty():
            left += self._queue.get() or ()
        return left

    def _run(self) -> None:
        try:
            driver = self._connect()
        except Exception as error:  # noqa: BLE001 - the opener is told, whatever it was
            self._opened.set_exception(error)
            return
        self._opened.set_result(None)
        try:
            self._serve(driver)
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may wait for ever
            self._events.failed(error)
        finally:
            driver.close()
            self.ended.set_result(None)

    def _serve(self, driver: Driver) -> None:
        committer = Committer(driver, self._hooks, self.counts.committed)
        checkpoints = Checkpoints(
            driver, self._wal_path, self._limits.wal_bytes_max, self.counts.log
        )
        while (line := self._next_line(committer, checkpoints)) is not None:
            self._line.extend(line)
            while self._line:
                self._commit_front(committer, checkpoints)
        driver.execute("PRAGMA optimize")
        checkpoints.finish()

    def _next_line(self, committer: Committer, checkpoints: Checkpoints) -> list[Pending] | None:
        while True:
            wait_s = self._retry_s if self._full else checkpoints.idle_wait_s
            try:
                return self._queue.get(timeout=wait_s)
            except Empty:
                self._use_gap(committer, checkpoints)

    def _use_gap(self, committer: Committer, checkpoints: Checkpoints) -> None:
        """Nothing waits: empty the log, or see whether a full disk has room again. Without that
        nobody would ever find out, since impatient operations are refused unseen."""
        if not self._full:
            checkpoints.run()
            return
        try:
            committer.commit((_PROBE,))
        except sqlite3.Error as error:
            self._wait_out(error, checkpoints)
        else:
            self._set_full(full=False)

    def _commit_front(self, committer: Committer, checkpoints: Checkpoints) -> None:
        """Commit as many as may share a commit, from the front of the line."""
        operations = [pending.operation for pending in self._front()]
        try:
            results = committer.commit(operations)
        except sqlite3.Error as error:
            self._wait_out(error, checkpoints)
            return
        self._retry_s = self._limits.retry_first_s
        if self._full:
            self._set_full(full=False)
        if any(operation.forgets for operation in operations):
            checkpoints.forget()
        self._done([(self._line.popleft(), result) for result in results])
        checkpoints.committed()

    def _front(self) -> list[Pending]:
        count = shared_commit(
            (pending.operation for pending in self._line), self._limits.commit_operations_max
        )
        return [self._line[n] for n in range(count)]

    def _wait_out(self, error: sqlite3.Error, checkpoints: Checkpoints) -> None:
        """Keep the line as it is and wait, if that may help. On a full disk the log is emptied: so
        it can be written again from its beginning, and need not grow."""
        kind = trouble(error)
        if kind not in (Trouble.FULL, Trouble.BUSY):
            raise error
        if kind is Trouble.FULL:
            self._refuse_impatient()
            checkpoints.run()
        if self._hurry.is_set():
            raise _ClosedWhileFull(str(error))
        self.counts.retries += 1
        if self._line:
            self._hurry.wait(self._retry_s)
        self._retry_s = min(self._retry_s * 2, self._limits.retry_max_s)

    def _refuse_impatient(self) -> None:
        if not self._full:
            self._set_full(full=True)
        impatient = [pending for pending in self._line if not pending.operation.patient]
        if impatient:
            self._line = deque(pending for pending in self._line if pending.operation.patient)
            self._done([(pending, StoreFull("the disk is full")) for pending in impatient])

    def _set_full(self, *, full: bool) -> None:
        self._full = full
        self._events.full(full)

    def _done(self, done: Done) -> None:
        self._events.done(done, not self._line)
