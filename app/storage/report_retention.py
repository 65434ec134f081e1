"""Deleting old reports: always from the front of the feed, so that what is left has no gap, and
nothing that a live consumer has not passed."""

from datetime import datetime
from typing import Final

from app.domain.feed import FeedState
from app.storage.deliveries import delete_steps
from app.storage.encoding import micros, moment
from app.storage.operations import Operation, Params, Rank, Statement, Step
from app.storage.readers import Readers

ROWS_MAX: Final = 500
"""Reports deleted in one transaction."""

_READ_BY_ALL: Final = (
    "NOT EXISTS (SELECT 1 FROM consumer WHERE state = 'live' AND passed < :through)"
)

_PRUNE: Final = Statement(
    "feed.prune",
    Rank.FEED_PRUNE,
    "UPDATE feed SET pruned = :through, bytes = bytes -"  # noqa: S608
    " (SELECT coalesce(sum(length(payload)), 0) FROM report WHERE seq <= :through)"
    f" WHERE pruned < :through AND last >= :through AND {_READ_BY_ALL}",
)

_DELETE: Final = Statement(
    "report.delete", Rank.REPORT_DELETE, "DELETE FROM report WHERE seq <= :through", exact=False
)

_FIRST: Final = """
SELECT seq, created_at, length(payload) AS size FROM report
WHERE seq <= coalesce((SELECT min(passed) FROM consumer WHERE state = 'live'), seq)
ORDER BY seq LIMIT :limit
"""
"""The reports that every live consumer has passed."""


async def load_old_reports(readers: Readers, before: datetime) -> int | None:
    """The place in the feed up to which the next batch may go; None when none may."""
    through: int | None = None
    for row in await readers.rows(_FIRST, {"limit": ROWS_MAX}):
        if row["created_at"] > micros(before):
            break
        through = row["seq"]
    return through


async def load_excess_reports(readers: Readers, excess_bytes: int) -> int | None:
    """The place up to which the next batch goes to make so much room; None when consumers hold all
    there is."""
    through: int | None = None
    for row in await readers.rows(_FIRST, {"limit": ROWS_MAX}):
        if excess_bytes <= 0:
            break
        through = row["seq"]
        excess_bytes -= row["size"]
    return through


async def oldest_report(readers: Readers) -> datetime | None:
    """When the first report that may go was made; None when there is none."""
    row = await readers.row(_FIRST, {"limit": 1})
    return None if row is None else moment(row["created_at"])


async def load_feed(readers: Readers) -> FeedState:
    """The feed as a whole."""
    row = await readers.row("SELECT * FROM feed")
    if row is None:
        return FeedState(last=0, pruned=0, bytes=0)
    return FeedState(last=row["last"], pruned=row["pruned"], bytes=row["bytes"])


def delete_reports(through: int) -> Operation:
    """Delete the reports up to this place. Void while a live consumer has not passed it."""
    params: Params = {"through": through}
    return Operation(
        name="delete_reports",
        subjects=("reports",),
        steps=(Step(_PRUNE, params), Step(_DELETE, params), *delete_steps(through)),
    )
