"""Bounds of the store."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterLimits:
    """Bounds of the writer."""

    operations_max: int = 10_000
    """Operations that may wait, those in the thread included."""
    commit_operations_max: int = 1_000
    """Operations in one commit."""
    lazy_wait_s: float = 0.25
    """How long lazy operations wait for others to ride along with."""
    wal_bytes_max: int = 16 * 1024 * 1024
    """Size of the write-ahead log above which it is emptied between commits: the larger, the
    rarer and the longer the pause."""
    retry_first_s: float = 0.05
    """First wait while the disk is full or the file busy; doubled each time."""
    retry_max_s: float = 2.0
    """Longest such wait."""
