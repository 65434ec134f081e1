"""The machine's processes, as services need them: a simulation gives its own."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from app.supervision.adopted import adopt
from app.supervision.process import Exit, Process, process_started, spawn


class Processes(Protocol):
    """Starts and finds worker processes."""

    def spawn(
        self,
        arguments: Sequence[str],
        launch: bytes,
        log_path: Path,
        environment: Mapping[str, str],
        on_exit: Callable[[Exit], None],
    ) -> Process:
        """Start ``python`` with these arguments, the launch record on its standard input.

        Raises:
            OSError: when the process cannot be started.
        """
        ...

    def adopt(
        self, pid: int, started: int, home: str, on_exit: Callable[[Exit], None]
    ) -> Process | None:
        """The process with this pid and start time, watched; None when it is gone, or belongs to
        another data directory than ``home``."""
        ...

    def started(self, pid: int) -> int | None:
        """What names this pid's process for good; None when there is none."""
        ...


class MachineProcesses:
    """The operating system's."""

    def spawn(
        self,
        arguments: Sequence[str],
        launch: bytes,
        log_path: Path,
        environment: Mapping[str, str],
        on_exit: Callable[[Exit], None],
    ) -> Process:
        """See ``Processes``."""
        return spawn(arguments, launch, log_path, environment, on_exit)

    def adopt(
        self, pid: int, started: int, home: str, on_exit: Callable[[Exit], None]
    ) -> Process | None:
        """See ``Processes``."""
        return adopt(pid, started, home, on_exit)

    def started(self, pid: int) -> int | None:
        """See ``Processes``."""
        return process_started(pid)
