"""When the write-ahead log goes back into the database file.

Only the writer does it, between commits: SQLite's own automatic checkpoint is off, because it lands
inside somebody's commit. The log is emptied in idle gaps once enough commits are in it, and at once
when its file passes a size; a reader that holds an old snapshot can keep a checkpoint from
completing, and then the next one waits for the log to grow by a quarter more.

What was deleted is still in the log: the old pages, and the ones before them. After a commit that
forgets, the log is cut to nothing as soon as no reader needs it; until then that is tried again and
again, without ever waiting for one.
"""

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from app.storage.connections import BUSY_TIMEOUT_MS
from app.storage.driver import Driver
from app.storage.errors import Trouble, trouble

IDLE_COMMITS: Final = 200
"""Commits in the log that make an idle gap worth a checkpoint."""
IDLE_GAP_S: Final = 0.1
FORGET_AGAIN_S: Final = 0.25
"""Between two tries to cut a log that readers keep."""


@dataclass(slots=True)
class CheckpointCounts:
    """The log's size as of the last commit, and what was done about it."""

    wal_bytes: int = 0
    checkpoints: int = 0
    incomplete_checkpoints: int = 0
    forgetting: bool = False
    """Whether the log may still hold what was deleted."""


class Checkpoints:
    """Decides and runs checkpoints on the writer's connection."""

    def __init__(
        self,
        driver: Driver,
        wal_path: Path,
        wal_bytes_max: int,
        counts: CheckpointCounts,
    ) -> None:
        self._driver = driver
        self._wal_path = wal_path
        self._wal_bytes_max = wal_bytes_max
        self._gate = wal_bytes_max
        self._commits = 0
        self._counts = counts
        self._forget_at = monotonic()
        # A log that an earlier parent left behind may hold what it deleted.
        counts.forgetting = self._wal_bytes() > 0
        # After the log was emptied its file shrinks to this, so that its size says how full it is.
        driver.execute(f"PRAGMA journal_size_limit = {wal_bytes_max // 4}")

    @property
    def idle_wait_s(self) -> float | None:
        """How long a gap must last before ``run`` pays; None when it would not."""
        worth_it = self._counts.forgetting or self._commits >= IDLE_COMMITS
        return IDLE_GAP_S if worth_it else None

    def forget(self) -> None:
        """What was deleted must leave the log too: from the next ``committed`` or ``run`` on."""
        self._counts.forgetting, self._forget_at = True, monotonic()

    def committed(self) -> None:
        """A commit was made: empty the log when it has grown too large, or holds what was
        deleted."""
        self._commits += 1
        self._counts.wal_bytes = self._wal_bytes()
        forget_now = self._counts.forgetting and monotonic() >= self._forget_at
        if forget_now or self._counts.wal_bytes >= self._gate:
            self.run()

    def run(self) -> None:
        """Move what can be moved without waiting for any reader."""
        self._commits = 0
        self._counts.checkpoints += 1
        if self._forgotten() if self._counts.forgetting else self._complete("PASSIVE"):
            self._gate = self._wal_bytes_max
        else:
            self._counts.incomplete_checkpoints += 1
            self._gate = self._counts.wal_bytes + self._wal_bytes_max // 4

    def finish(self) -> None:
        """Empty the log and its file, at a clean close."""
        self._complete("TRUNCATE")

    def _forgotten(self) -> bool:
        """Cut the log, unless a reader needs it."""
        self._driver.execute("PRAGMA busy_timeout = 0")
        try:
            cut = self._complete("TRUNCATE")
        finally:
            self._driver.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        self._counts.forgetting = not cut
        self._counts.wal_bytes = self._wal_bytes()
        self._forget_at = monotonic() + FORGET_AGAIN_S
        return cut

    def _complete(self, mode: str) -> bool:
        try:
            ((busy, in_log, moved),) = self._driver.execute(
                f"PRAGMA wal_checkpoint({mode})"
            ).fetchall()
        except sqlite3.Error as error:
            if trouble(error) is Trouble.FATAL:
                raise
            return False
        return not busy and in_log == moved

    def _wal_bytes(self) -> int:
        # The file is never opened here: closing it again would drop SQLite's locks on it.
        try:
            return self._wal_path.stat().st_size
        except FileNotFoundError:
            return 0
