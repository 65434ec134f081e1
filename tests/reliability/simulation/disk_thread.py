"""The writer's thread of a simulation: the shipped one, of which each commit is an act."""

from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from app.storage.checkpoints import Checkpoints
from app.storage.committing import Committer
from app.storage.driver import Driver
from app.storage.writer_thread import Pending, WriterThread
from tests.reliability.simulation.disk import Disk

if TYPE_CHECKING:
    from concurrent.futures import Future as ThreadFuture


class NoWait:
    """In place of the event that a retry waits for: the wait becomes the next act's delay."""

    def __init__(self) -> None:
        self.wait_s = 0.0
        self._set = False

    def wait(self, timeout: float) -> None:
        self.wait_s = timeout

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set


class SteppedThread(WriterThread):
    """No thread at all. ``disk`` is set by ``stepping``."""

    disk: Disk
    made: "list[SteppedThread]"
    _driver: Driver

    @override
    def start(self) -> "ThreadFuture[None]":
        self.made.append(self)
        self._wait = NoWait()
        self._hurry = cast("Any", self._wait)
        self._planned = self._ending = self._crashed = False
        self._driver = self._connect()
        self._committer = Committer(self._driver, self._hooks, self.counts.committed)
        self._checkpoints = Checkpoints(
            self._driver, self._wal_path, self._limits.wal_bytes_max, self.counts.log
        )
        self._opened.set_result(None)
        return self._opened

    @override
    def put(self, line: list[Pending]) -> None:
        self._line.extend(line)
        self._plan(self.disk.takes_s())

    @override
    def end(self) -> None:
        self._ending = True
        self._plan(0.0)

    def crash(self) -> None:
        """Its process is gone."""
        self._crashed = True
        self._driver.close()

    def _plan(self, wait_s: float) -> None:
        if not self._planned:
            self._planned = True
            self.disk.world.after(wait_s, self._step)

    def _step(self) -> None:
        self._planned = False
        if self._crashed or self.ended.done():
            return
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - as the thread does
            self._events.failed(error)
            self._driver.close()
            self.ended.set_result(None)

    def _work(self) -> None:
        self._wait.wait_s = 0.0
        if self._line:
            self._commit_front(self._committer, self._checkpoints)
        elif self._full:
            self._use_gap(self._committer, self._checkpoints)
            self._wait.wait_s = self._retry_s
        if self._line or (self._full and not self._ending):
            self._plan(max(self.disk.takes_s(), self._wait.wait_s))
        elif self._ending:
            self._checkpoints.finish()
            self._driver.close()
            self.ended.set_result(None)


def stepping(disk: Disk) -> type[SteppedThread]:
    """The class whose threads are stepped on this disk."""
    return type("SteppedThread", (SteppedThread,), {"disk": disk, "made": []})
