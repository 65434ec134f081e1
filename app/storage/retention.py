"""Deleting what has been kept long enough: ended jobs with all that is theirs, and old keys.

A job is kept for its own time after its end, or for as long as the setting says. It goes whole, in
one transaction, with its attempts, its journal and its idempotency key; its report stays. Several
go together up to ``ROWS_MAX`` rows, so that the writer is never away for long.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from app.storage.encoding import micros, moment
from app.storage.operations import Operation, Params, Rank, Statement, Step
from app.storage.readers import Readers
from shared.ids import JobId

ROWS_MAX: Final = 500
"""Rows deleted in one transaction, unless a single job has more."""

_DELETE_JOB: Final = Statement(
    "job.delete",
    Rank.JOB_DELETE,
    "DELETE FROM job WHERE id = :job AND finalized_at IS NOT NULL"
    " AND iif(keep_until IS NULL, finalized_at <= :before, keep_until <= :now)",
    exact=False,
)

_DELETE_KEYS: Final = Statement(
    "idempotency.delete",
    Rank.IDEMPOTENCY_DELETE,
    "DELETE FROM idempotency WHERE (tenant, method, path, key) IN"  # noqa: S608
    " (SELECT tenant, method, path, key FROM idempotency WHERE expires_at <= :now"
    f" ORDER BY expires_at LIMIT {ROWS_MAX})",
    exact=False,
)

_DUE: Final = """
SELECT id,
    1 + attempt + (SELECT coalesce(max(number) + 1, 0) FROM chunk WHERE chunk.job = job.id) AS size
FROM job
"""
"""Jobs, each with about its number of rows."""

_DUE_BY_THEIR_OWN: Final = _DUE + (
    "WHERE keep_until IS NOT NULL AND keep_until <= :now ORDER BY keep_until LIMIT :limit"
)
_DUE_BY_SETTING: Final = _DUE + (
    "WHERE finalized_at IS NOT NULL AND finalized_at <= :before AND keep_until IS NULL"
    " ORDER BY finalized_at LIMIT :limit"
)
_OLD_KEYS: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM idempotency WHERE expires_at <= :now LIMIT :limit)"
)


class Expired(msgspec.Struct, frozen=True, kw_only=True):
    """What may go in one transaction at ``now``. ``keep_s`` is the setting it was found by."""

    jobs: tuple[JobId, ...]
    keys: int
    now: datetime
    keep_s: float

    def __bool__(self) -> bool:
        return bool(self.jobs or self.keys)


async def load_expired(readers: Readers, now: datetime, keep_s: float) -> Expired:
    """The next batch to delete; empty when nothing is due."""
    before = micros(now - timedelta(seconds=keep_s))
    params: Params = {"now": micros(now), "before": before, "limit": ROWS_MAX}
    due = [
        *await readers.rows(_DUE_BY_THEIR_OWN, params),
        *await readers.rows(_DUE_BY_SETTING, params),
    ]
    keys = await readers.value(_OLD_KEYS, params)
    jobs = _first([(JobId(row["id"]), row["size"]) for row in due])
    return Expired(jobs=jobs, keys=keys, now=now, keep_s=keep_s)


def delete_expired(expired: Expired) -> Operation:
    """Delete this batch. What has gone or is kept longer by now is left alone. The text of a
    deleted job is overwritten in the file, and the log that may still hold it is emptied."""
    now = micros(expired.now)
    before = micros(expired.now - timedelta(seconds=expired.keep_s))
    params: list[tuple[JobId, Params]] = [
        (job_id, {"job": job_id, "now": now, "before": before}) for job_id in expired.jobs
    ]
    steps = [Step(_DELETE_JOB, row, job_id) for job_id, row in params]
    steps.append(Step(_DELETE_KEYS, {"now": now}))
    return Operation(
        name="delete_expired",
        subjects=expired.jobs,
        steps=tuple(steps),
        forgets=bool(expired.jobs),
    )


async def next_expiry(readers: Readers, keep_s: float) -> datetime | None:
    """When the next job or key is due; None while there is nothing that ever will be."""
    by_setting = await readers.value(
        "SELECT min(finalized_at) FROM job WHERE finalized_at IS NOT NULL AND keep_until IS NULL"
    )
    own = await readers.value("SELECT min(keep_until) FROM job WHERE keep_until IS NOT NULL")
    key = await readers.value("SELECT min(expires_at) FROM idempotency")
    moments = [moment(found) for found in (own, key) if found is not None]
    if by_setting is not None:
        moments.append(moment(by_setting) + timedelta(seconds=keep_s))
    return min(moments, default=None)


def _first(due: Sequence[tuple[JobId, int]]) -> tuple[JobId, ...]:
    """As many as fit in one transaction, and one in any case."""
    taken: list[JobId] = []
    total = 0
    for job_id, size in due:
        total += size
        if taken and total > ROWS_MAX:
            break
        taken.append(job_id)
    return tuple(taken)
