"""A file that takes up room on the disk, so that there is some when the disk is full.

It lies beside the database. When nothing can be written any more it is dropped, and what must be
recorded of the work at hand finds room in its place. It is really allocated, not a hole.
"""

import os
from pathlib import Path
from typing import Final

_BLOCK_BYTES: Final = 1 << 20


class Ballast:
    """The file, which may be there or not. A size of 0 means that there never is one.

    Its calls block: not for an event loop.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self.size = size

    @property
    def stands(self) -> bool:
        """Whether the room is taken, so that it can be given."""
        try:
            state = self._path.stat()
        except OSError:
            return not self.size
        return state.st_size == self.size and state.st_blocks * 512 >= self.size

    @property
    def free_bytes(self) -> int:
        """Room on the disk, for this user."""
        state = os.statvfs(self._path.parent)
        return state.f_bavail * state.f_frsize

    @property
    def wanted_bytes(self) -> int:
        """Room there must be before the file is made: as much again is left for others."""
        return 2 * self.size

    def make(self) -> bool:
        """Take up the room, unless there is too little of it; whether the file stands now."""
        if self.stands:
            return True
        self.drop()
        if not self.size:
            return True
        if self.free_bytes < self.wanted_bytes:
            return False
        try:
            self._allocate()
        except OSError:
            self.drop()
            return False
        return self.stands

    def drop(self) -> None:
        """Give up the room."""
        self._path.unlink(missing_ok=True)

    def _allocate(self) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, self.size)
            else:
                _fill(descriptor, self.size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _fill(descriptor: int, size: int) -> None:
    """Where room cannot be reserved it is written: with bytes that no file system makes smaller."""
    block = os.urandom(_BLOCK_BYTES)
    left = size
    while left:
        left -= os.write(descriptor, block[:left])
