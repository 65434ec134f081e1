"""Deleting old reports: always from the front of the feed, so that what is left has no gap."""

from datetime import datetime
from typing import Final

import sqlalchemy as sa

from app.storage.encoding import micros, moment
from app.storage.operations import Operation, Params, Rank, Statement, Step
from app.storage.readers import Readers
from app.storage.tables import report

ROWS_MAX: Final = 500
"""Reports deleted in one transaction."""

_DELETE: Final = Statement(
    "report.delete", Rank.REPORT_DELETE, "DELETE FROM report WHERE seq <= :through", exact=False
)


async def load_old_reports(readers: Readers, before: datetime) -> int | None:
    """The place in the feed up to which the next batch may go; None when none may."""
    first = sa.select(report.c.seq, report.c.created_at).order_by(report.c.seq).limit(ROWS_MAX)
    through: int | None = None
    for row in await readers.rows(first):
        if row["created_at"] > micros(before):
            break
        through = row["seq"]
    return through


async def oldest_report(readers: Readers) -> datetime | None:
    """When the first report of the feed was made; None when there is none."""
    query = sa.select(report.c.created_at).order_by(report.c.seq).limit(1)
    found = await readers.value(query)
    return None if found is None else moment(found)


def delete_reports(through: int) -> Operation:
    """Delete the reports up to this place."""
    params: Params = {"through": through}
    return Operation(name="delete_reports", subjects=("reports",), steps=(Step(_DELETE, params),))
