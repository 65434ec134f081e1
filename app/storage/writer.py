"""The writer: the only way into the store.

    event loop                                writer thread
    ──────────                                ─────────────
    submit ─▶ waiting list ──hand over───────▶ BEGIN IMMEDIATE … COMMIT
                   ▲                                │
                   └── resolve futures, next list ◀─┘

Operations collect in a list while the thread works; when it is done it takes the whole list. So a
commit holds whatever has gathered and no timer is involved: alone an operation commits at once,
under load hundreds share one commit. A future is resolved after the commit that holds its
operation.

When the disk is full nothing is lost and nothing changes order: the thread tries again with
back-off, callers that would rather know (``Operation.patient`` False) get ``StoreFull``, as they do
while what room there is must be spared (``sparing``). An error of the file itself is fatal:
everything that waits gets ``StoreFailed``, and ``on_fatal`` is called.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from app.domain.errors import ServerOverloaded
from app.storage.committing import CommitHooks
from app.storage.driver import Driver
from app.storage.errors import OperationFailed, StoreError, StoreFailed, StoreFull
from app.storage.limits import WriterLimits
from app.storage.operations import COMMITTED, Operation, Outcome
from app.storage.writer_thread import Done, Pending, ThreadEvents, WriterCounts, WriterThread

OutcomeFuture: TypeAlias = "asyncio.Future[Outcome]"

RETRY_AFTER_S: Final = 1.0
"""What callers are told when the writer is behind."""


class Submitted(Protocol):
    """An operation, or what becomes one when the thread gets it: until then it may grow."""

    @property
    def lazy(self) -> bool: ...
    @property
    def patient(self) -> bool: ...
    def build(self) -> Operation:
        """The operation; called once."""
        ...


class Writer:
    """Takes operations on the event loop. Created and started by ``Database``.

    Args:
        connect: makes the read-write connection; called in the thread.
        wal_path: the write-ahead log's file.
        on_full: called on the loop with True when the disk is full and False when it no longer is.
        on_fatal: called on the loop, once, when the store can no longer be written.
        thread: what commits; a simulation gives one that it steps.

    Attributes:
        full: the disk is full.
        sparing: impatient operations are refused as if it were; set by ``Room``.
    """

    def __init__(
        self,
        connect: Callable[[], Driver],
        wal_path: Path,
        limits: WriterLimits,
        hooks: CommitHooks,
        *,
        on_full: Callable[[bool], None],
        on_fatal: Callable[[Exception], None],
        thread: type[WriterThread] = WriterThread,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._on_full = on_full
        self._on_fatal = on_fatal
        self._waiting: list[tuple[Submitted, OutcomeFuture]] = []
        self._grown = 0
        self._in_thread = 0
        self._hand_over_due = False
        self._lazy_timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._failure: StoreError | None = None
        self.full = False
        self.sparing = False
        self.on_published: list[Callable[[], None]] = []
        """Called on the loop after each commit that may have added to the feed of reports."""
        events = ThreadEvents(
            done=partial(self._post, self._done),
            full=partial(self._post, self._full),
            failed=partial(self._post, self._failed),
        )
        self._thread = thread(connect, wal_path, limits, hooks, events)

    async def start(self) -> None:
        """Open the connection.

        Raises:
            StoreError: when it cannot be opened as it must be.
        """
        await asyncio.wrap_future(self._thread.start())

    @property
    def refuses(self) -> bool:
        """Whether impatient operations get ``StoreFull`` at the moment."""
        return self.full or self.sparing

    @property
    def depth(self) -> int:
        """Operations that wait or are being committed; what one has grown by counts as more."""
        return len(self._waiting) + self._grown + self._in_thread

    @property
    def counts(self) -> WriterCounts:
        """Cumulative numbers, for metrics."""
        return self._thread.counts

    def submit(self, operation: Submitted) -> OutcomeFuture:
        """Write this. The future holds ``Committed`` or ``Void`` after its commit, else
        ``OperationFailed``, ``StoreFull`` or ``StoreFailed``. Cancelling it does not undo the
        operation.

        Raises:
            ServerOverloaded: too many operations wait; nothing was taken.
        """
        return self.submit_many((operation,))[0]

    def submit_many(self, operations: Sequence[Submitted]) -> list[OutcomeFuture]:
        """Write these, in this order and as few commits as they fit in: all are taken or none.

        Raises:
            ServerOverloaded: too many operations wait; nothing was taken. Patient ones are taken
                all the same: they record what is at work, which has bounds of its own.
        """
        crowded = self.depth + len(operations) > self._limits.operations_max
        if crowded and any(not operation.patient for operation in operations):
            raise ServerOverloaded(retry_after_s=RETRY_AFTER_S)
        futures = [self._take(operation) for operation in operations]
        self._wake()
        return futures

    def may_grow(self, operation: Submitted) -> bool:
        """Whether this one still waits, and nothing was submitted after it: what is added to it
        now keeps its place among all changes. ``grown`` is to be called then."""
        return bool(self._waiting) and self._waiting[-1][0] is operation

    def grown(self) -> None:
        """The last operation was added to: it may be in more of a hurry than before."""
        self._grown += 1
        self._wake()

    async def close(self) -> None:
        """Commit what waits, empty the log, close the connection. Takes nothing from now on."""
        if not self._closing:
            self._closing = True
            self._thread.hurry()
            self._wake()
        await asyncio.wrap_future(self._thread.ended)

    def _take(self, operation: Submitted) -> OutcomeFuture:
        future: OutcomeFuture = self._loop.create_future()
        refusal = self._refusal(operation)
        if refusal is None:
            self._waiting.append((operation, future))
        else:
            future.set_exception(refusal)
        return future

    def _refusal(self, operation: Submitted) -> StoreError | None:
        if self._failure is not None:
            return self._failure
        if self._closing:
            return StoreFailed("the store is closed")
        if self.refuses and not operation.patient:
            return StoreFull("the disk is full")
        return None

    def _wake(self) -> None:
        """See that the thread gets the list, once this turn of the loop has added to it."""
        if self._in_thread or self._hand_over_due:
            return
        if self._closing or self._hurried:
            self._hand_over_due = True
            self._loop.call_soon(self._hand_over)
        elif self._waiting and self._lazy_timer is None:
            self._lazy_timer = self._loop.call_later(self._limits.lazy_wait_s, self._hand_over)

    def _hand_over(self) -> None:
        self._hand_over_due = False
        if self._lazy_timer is not None:
            self._lazy_timer.cancel()
            self._lazy_timer = None
        if self._in_thread:
            return
        line = self._built()
        if line:
            self._in_thread = len(line)
            self._thread.put(line)
        elif self._closing:
            self._thread.end()

    def _built(self) -> list[Pending]:
        """All that waits. What cannot be made into an operation fails alone."""
        waiting, self._waiting, self._grown = self._waiting, [], 0
        line: list[Pending] = []
        for operation, future in waiting:
            try:
                line.append(Pending(operation.build(), future))
            except Exception as error:  # noqa: BLE001 - nobody may wait for ever, whatever it was
                settle(future, OperationFailed(type(operation).__name__, "build", "", str(error)))
        return line

    @property
    def _hurried(self) -> bool:
        return any(not operation.lazy for operation, _ in self._waiting)

    # --- called on the loop by the thread -------------------------------------------------------

    def _done(self, done: Done, idle: bool) -> None:  # noqa: FBT001 - the thread's own words
        self._in_thread -= len(done)
        published = False
        for pending, result in done:
            settle(pending.future, result)
            published |= result is COMMITTED and pending.operation.publishes
        if idle:
            self._next()
        if published:
            for told in self.on_published:
                told()

    def _next(self) -> None:
        """The thread has nothing left: hand over at once what has gathered meanwhile."""
        if self._closing or self._hurried:
            self._hand_over()
        else:
            self._wake()

    def _full(self, full: bool) -> None:  # noqa: FBT001 - the callback's one fact
        self.full = full
        if full:
            impatient = [future for operation, future in self._waiting if not operation.patient]
            self._waiting = [pending for pending in self._waiting if pending[0].patient]
            for future in impatient:
                settle(future, StoreFull("the disk is full"))
        self._on_full(full)

    def _failed(self, error: Exception) -> None:
        self._failure = StoreFailed(f"the store can no longer be written: {error}")
        lost = [pending.future for pending in self._thread.left()]
        lost += [future for _, future in self._waiting]
        self._waiting, self._in_thread = [], 0
        for future in lost:
            settle(future, self._failure)
        self._on_fatal(error)

    def _post(self, callback: Callable[..., None], *arguments: object) -> None:
        """Called in the thread. Once the loop is closed nobody is left to be told."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)


def settle(future: OutcomeFuture, result: Outcome | StoreError) -> None:
    """Wake whoever waits, unless they have gone."""
    if future.done():
        return
    if isinstance(result, StoreError):
        future.set_exception(result)
    else:
        future.set_result(result)
