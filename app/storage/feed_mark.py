"""How far the feed has come, written beside the database: how a restored backup is noticed.

A database that was put back from a backup counts on from where the backup was made, and would give
numbers to new reports that readers have seen on others. So after each commit that adds to the feed
its end is noted in a small file. A database that is behind its mark, or of another epoch, was put
back: it begins a new epoch. A mark that is missing, or lags behind since the power failed, tells
too little; it never makes a database that is right begin anew without need, except once.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from app.storage.committing import CommitHooks, Hook
from app.storage.driver import Driver
from app.storage.operations import Operation

NAME: Final = "feed"
_BYTES: Final = 256
"""All the file ever has, so that writing it again needs no room."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The feed as it was last known; ``parent_epoch`` is that of the last start."""

    feed_epoch: str
    last: int
    parent_epoch: int


class FeedMark:
    """The file beside a database. What cannot be written is left as it is."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(NAME)
        self._mark: Mark | None = None

    def read(self) -> Mark | None:
        """What it says; None when there is none that can be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Mark)
        except (OSError, msgspec.DecodeError):
            return None

    def write(self, mark: Mark, *, durably: bool = False) -> None:
        """Say so from now on."""
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(descriptor, msgspec.json.encode(mark).ljust(_BYTES), 0)
                os.ftruncate(descriptor, _BYTES)
                if durably:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def following(self, hooks: CommitHooks) -> CommitHooks:
        """These hooks, with the mark moved after each commit that added to the feed."""
        self._mark = self.read()
        return CommitHooks(
            before_begin=hooks.before_begin,
            before_commit=hooks.before_commit,
            after_commit=self._after(hooks.after_commit),
        )

    def _after(self, then: Hook) -> Hook:
        def committed(driver: Driver, operations: Sequence[Operation]) -> None:
            if any(operation.publishes for operation in operations) and self._mark is not None:
                ((last,),) = driver.execute("SELECT last FROM feed").fetchall()
                self._mark = msgspec.structs.replace(self._mark, last=last)
                self.write(self._mark)
            then(driver, operations)

        return committed
