"""A worker process that an earlier parent started: watched and signalled, never reaped.

Whoever adopts it knows its pid and its start time; both are checked before anything is sent, since
pids are used again.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from app.supervision.process import Exit, process_started

HOME_VARIABLE: Final = "MLXQ_WORKER_HOME"
"""Environment variable of a worker: the data directory of the parent that started it."""

CHECK_S: Final = 0.25
"""How often a process is looked at where the kernel cannot tell of its death."""


class AdoptedProcess:
    """A living process that is no child of ours. Created by ``adopt``."""

    def __init__(self, pid: int, started: int, on_exit: Callable[[Exit], None]) -> None:
        self._pid = pid
        self._started = started
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._pidfd: int | None = None
        self._gone = False
        self._watch()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; to a process that is gone already, nothing."""
        if self._gone:
            return
        try:
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, number)
            elif process_started(self._pid) == self._started:
                os.kill(self._pid, number)
        except ProcessLookupError:
            self._look()

    def _watch(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self._pid)
        except (AttributeError, OSError):
            self._loop.call_soon(self._look)
            return
        self._loop.add_reader(self._pidfd, self._died)
        if process_started(self._pid) != self._started:
            self._loop.call_soon(self._died)

    def _look(self) -> None:
        if process_started(self._pid) == self._started:
            self._loop.call_later(CHECK_S, self._look)
        else:
            self._died()

    def _died(self) -> None:
        if self._gone:
            return
        self._gone = True
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        self._on_exit(Exit())


def adopt(
    pid: int, started: int, home: str, on_exit: Callable[[Exit], None]
) -> AdoptedProcess | None:
    """The process with this pid and start time, watched; None when it is gone, or belongs to
    another data directory, of which this one is a copy."""
    if process_started(pid) != started or _home_of(pid) not in (home, None):
        return None
    return AdoptedProcess(pid, started, on_exit)


def _home_of(pid: int) -> str | None:
    """The data directory a worker was started for; None where the kernel does not tell."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = f"{HOME_VARIABLE}=".encode()
    found = (item.removeprefix(prefix) for item in environment if item.startswith(prefix))
    return os.fsdecode(next(found, b""))
