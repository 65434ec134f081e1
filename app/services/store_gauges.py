"""The store's metrics: how it is written and read, and what becomes of what is kept in it."""

from app.services.compaction import Compaction
from app.services.gauges import counter, gauge
from app.services.overview import Gauge
from app.services.retention import Retention
from app.storage.database import Database


def store_gauges(database: Database, retention: Retention, compaction: Compaction) -> list[Gauge]:
    """All of them."""
    return [*_of_writing(database), *_of_keeping(database, retention, compaction)]


def _of_writing(database: Database) -> list[Gauge]:
    counts = database.writer.counts
    return [
        counter("store_commits", "Transactions committed.", lambda: counts.committed.commits),
        counter("store_operations", "Operations committed.", lambda: counts.committed.operations),
        counter("store_voids", "Operations that changed nothing.", lambda: counts.committed.voids),
        counter(
            "store_retries",
            "Commits that a full disk or another process held up.",
            lambda: counts.retries,
        ),
        counter(
            "store_checkpoints_incomplete",
            "Checkpoints that a reader held up.",
            lambda: counts.log.incomplete_checkpoints,
        ),
        gauge("store_log_bytes", "Size of the write-ahead log.", lambda: counts.log.wal_bytes),
        gauge(
            "store_waiting",
            "Operations that wait for the writer.",
            lambda: database.writer.depth,
        ),
    ]


def _of_keeping(database: Database, retention: Retention, compaction: Compaction) -> list[Gauge]:
    return [
        counter("store_reads", "Reads of the store.", lambda: database.readers.reads),
        gauge(
            "store_out_of_room",
            "Whether new work is refused because the disk is full.",
            lambda: database.room.short,
        ),
        counter(
            "jobs_deleted",
            "Jobs deleted because they were kept long enough.",
            lambda: retention.jobs_deleted,
        ),
        counter(
            "journals_joined",
            "Ended jobs whose output was joined into few rows.",
            lambda: compaction.jobs,
        ),
    ]
