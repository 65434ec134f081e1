"""Servers from the nursery, which start in no time. They are handled like ``subprocess.Popen``."""

import atexit
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from tests.waiting import wait_until

REPOSITORY: Final = Path(__file__).parents[2]


class Birth(msgspec.Struct, kw_only=True):
    """One server that is asked for."""

    arguments: list[str]
    environment: dict[str, str]
    output: str
    errors: str
    exit_code: str
    sabotage: list[str] = []


class ForkedProcess:
    """A process of the nursery."""

    def __init__(self, pid: int, exit_code: Path) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._exit_code = exit_code

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        if self.returncode is None and self._exit_code.exists():
            self.returncode = int(self._exit_code.read_text())
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        try:
            wait_until(lambda: self.poll() is not None, timeout or 3600)
        except AssertionError as error:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 3600) from error
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Signal it, unless it is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(birth: Birth) -> ForkedProcess:
    """A fresh server process."""
    nursery = _nursery()
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(msgspec.json.encode(birth) + b"\n")
    nursery.stdin.flush()
    return ForkedProcess(int(nursery.stdout.readline()), Path(birth.exit_code))


@cache
def _nursery() -> "subprocess.Popen[bytes]":
    """One for all tests."""
    nursery = subprocess.Popen(
        [sys.executable, "-m", "tests.durable.nursery"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
    )
    atexit.register(_end, nursery)
    return nursery


def _end(nursery: "subprocess.Popen[bytes]") -> None:
    nursery.communicate()
