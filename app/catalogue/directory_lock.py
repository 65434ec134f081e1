"""One writer at a time for a name in a directory, across processes; a death frees it."""

import fcntl
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

_PLAIN = re.compile(r"[^A-Za-z0-9._-]")


@contextmanager
def directory_lock(directory: Path, name: str, on_wait: Callable[[], None]) -> Generator[None]:
    """Hold the lock of `name` in `directory`; `on_wait` is called once when another has it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f".lock-{_PLAIN.sub('-', name)}").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
