"""One worker process: spawned, watched, signalled, reaped.

The child runs in its own session and outlives this process. Its launch record goes through
standard input, which is closed behind it; its output goes to a file. Death is seen through a pidfd
where the kernel has one, else by a thread that waits.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from typing_extensions import override


@dataclass(slots=True, frozen=True)
class Exit:
    """How a process ended: exactly one of ``code`` and ``signal_number`` is set, or neither when
    it was no child of ours."""

    code: int | None = None
    signal_number: int | None = None

    @override
    def __str__(self) -> str:
        if self.signal_number is not None:
            return f"killed by {signal.Signals(self.signal_number).name}"
        if self.code is not None:
            return f"exit code {self.code}"
        return "gone"


class Process(Protocol):
    """A worker's process, whoever started it."""

    @property
    def pid(self) -> int:
        """Process id."""
        ...

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; to a process that is gone already, nothing."""
        ...


class WorkerProcess:
    """A running child. Created by ``spawn``."""

    def __init__(self, popen: "subprocess.Popen[bytes]", on_exit: Callable[[Exit], None]) -> None:
        self._popen = popen
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._pidfd: int | None = None
        self.exit: Exit | None = None
        self._watch()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._popen.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; to a process that is gone already, nothing."""
        if self.exit is None:
            self._popen.send_signal(number)

    def _watch(self) -> None:
        if hasattr(os, "pidfd_open"):
            self._pidfd = os.pidfd_open(self.pid)
            self._loop.add_reader(self._pidfd, self._reap)
        else:
            threading.Thread(target=self._wait, name=f"wait-{self.pid}", daemon=True).start()

    def _wait(self) -> None:
        self._popen.wait()
        self._loop.call_soon_threadsafe(self._reap)

    def _reap(self) -> None:
        code = self._popen.poll()
        if code is None or self.exit is not None:
            return
        self.stop_watching()
        self.exit = Exit(signal_number=-code) if code < 0 else Exit(code=code)
        self._on_exit(self.exit)

    def stop_watching(self) -> None:
        """Leave the process alone from now on; it is not signalled."""
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None


def spawn(
    arguments: Sequence[str],
    launch: bytes,
    log_path: Path,
    environment: Mapping[str, str],
    on_exit: Callable[[Exit], None],
) -> WorkerProcess:
    """Start ``python -m …`` with these arguments.

    Raises:
        OSError: when the process cannot be started.
    """
    log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        popen = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=descriptor,
            stderr=descriptor,
            env=dict(environment),
            start_new_session=True,
            close_fds=True,
        )
    finally:
        os.close(descriptor)
    _hand_over(popen, launch)
    return WorkerProcess(popen, on_exit)


def _hand_over(popen: "subprocess.Popen[bytes]", launch: bytes) -> None:
    """Write the launch record: it fits in a pipe's buffer, so this does not block."""
    pipe = popen.stdin
    if pipe is None:
        return
    try:
        pipe.write(launch)
        pipe.close()
    except BrokenPipeError:
        return


def process_started(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None when there is none (or no /proc).

    With the pid it names a process for good: pids are reused, start times are not.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])
