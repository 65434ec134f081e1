"""One parent per data directory: an advisory lock that the kernel drops with the process.

The file stays when its holder is gone; only the lock on it means anything. It is not inherited by
child processes, so a worker that outlives its parent does not keep the next one out.
"""

import fcntl
import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Self

import msgspec
from typing_extensions import override

from app.storage.errors import AlreadyRunning


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds the directory; ``started_at`` is aware UTC."""

    pid: int
    started_at: datetime

    @override
    def __str__(self) -> str:
        return f"process {self.pid}, started {self.started_at:%Y-%m-%d %H:%M:%S} UTC"


class DirectoryLock:
    """Held from ``take`` to ``release``."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: Path, data_dir: Path, now: datetime) -> Self:
        """Lock ``path`` for this process.

        Raises:
            AlreadyRunning: another process holds it; says which.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise AlreadyRunning(data_dir, holder) from None
        content = msgspec.json.encode(Holder(pid=os.getpid(), started_at=now))
        os.ftruncate(descriptor, 0)
        with suppress(OSError):  # a full disk keeps the name from others, not the lock from us
            os.pwrite(descriptor, content, 0)
        return cls(descriptor)

    def release(self) -> None:
        """Let the next one in; again is nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def holder_of(path: Path) -> str | None:
    """Who holds the lock at ``path``, in words; None when nobody does."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    try:
        return str(msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Holder))
    except msgspec.DecodeError:
        return "another process"  # it has the lock and is about to write its name
