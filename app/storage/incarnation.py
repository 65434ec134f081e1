"""Telling a database that was put back from a backup from the one that was closed last.

Beside the database lies a small file that says which one was opened last: a token that each open
writes into both, the number of the start, and which file it was. A copy that was made earlier has
an earlier token; a file that was put in its place is another one. Whatever cannot be told apart
for certain counts as restored: that costs readers of the feed a new epoch, and nothing is lost.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import msgspec

NAME: Final = "opened"


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What was opened last. While a start is under way both tokens may be in the database."""

    tokens: tuple[str, ...]
    parent_epoch: int
    device: int
    inode: int

    @classmethod
    def now(cls, path: Path, parent_epoch: int, *tokens: str) -> Self:
        """This database file."""
        found = path.stat()
        return cls(
            tokens=tokens, parent_epoch=parent_epoch, device=found.st_dev, inode=found.st_ino
        )

    def is_this(self, path: Path, token: str | None) -> bool:
        """Whether the file is the one, as it was left."""
        found = path.stat()
        same_file = (found.st_dev, found.st_ino) == (self.device, self.inode)
        return same_file and token in self.tokens


def read_opened(database: Path) -> Opened | None:
    """What the file beside this database says; None when there is none that can be read."""
    try:
        content = database.with_name(NAME).read_bytes()
        return msgspec.json.decode(content, type=Opened)
    except (OSError, msgspec.DecodeError):
        return None


def write_opened(database: Path, opened: Opened) -> None:
    """Say so, durably. In place, so that it needs no room once the file is there."""
    content = msgspec.json.encode(opened).ljust(512)
    with suppress(OSError):  # no room: then the next start takes it for restored
        path = database.with_name(NAME)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, content, 0)
            os.ftruncate(descriptor, len(content))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
