"""A program that has imported the server once and forks a fresh one whenever it is told to.

These tests kill and start servers by the dozen, and importing takes most of a start. What is forked
is a process like any other: it runs ``mlxq serve`` from its first line, and dies of SIGKILL.

Each line on standard input asks for one: its arguments, its environment, the files for its output
and for its exit code, and what is to go wrong in it. The answer is its pid.
"""

import gc
import os
import random
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec

from app import main as server
from app.cli.main import main
from tests.durable.forking import Birth
from tests.durable.sabotage import obey

IMPORTED = server
"""What takes the time: the command line imports it only when it is asked to serve."""


class Nursery:
    """Forks servers, and tells of their ends."""

    def __init__(self) -> None:
        self._files: dict[int, Path] = {}
        self._codes: dict[int, int] = {}

    def run(self) -> None:
        """Until standard input ends."""
        signal.signal(signal.SIGCHLD, self._ended)
        for line in sys.stdin.buffer:
            birth = msgspec.json.decode(line, type=Birth)
            pid = os.fork()
            if pid == 0:
                live(birth)
            self._files[pid] = Path(birth.exit_code)
            self._tell()
            sys.stdout.write(f"{pid}\n")
            sys.stdout.flush()

    def _ended(self, _number: int, _frame: FrameType | None) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self._codes[pid] = os.waitstatus_to_exitcode(status)
        self._tell()

    def _tell(self) -> None:
        for pid in self._codes.keys() & self._files.keys():
            path = self._files.pop(pid)
            draft = path.with_suffix(".draft")
            draft.write_text(str(self._codes.pop(pid)))
            draft.rename(path)


def live(birth: Birth) -> NoReturn:
    """Be the server."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor, name, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, birth.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, birth.errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        opened = os.open(name, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(birth.environment)
    random.seed()
    obey(birth.sabotage)
    sys.argv = ["mlxq", *birth.arguments]
    code: object = 1
    try:
        main()
    except SystemExit as exit_:
        code = exit_.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    gc.freeze()
    Nursery().run()
