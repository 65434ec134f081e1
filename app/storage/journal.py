"""Reading a job's journal in pages.

An ended job's rows may be joined at any time (``compaction``), so a page is read in one snapshot
together with the job's row, and a whole journal in one snapshot too. Pages are bounded by events,
since a joined row holds many.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from app.storage.frames import NewChunk
from app.storage.job_query import JOB
from app.storage.readers import Readers, undisturbed
from app.storage.rows import JobRow, chunk_from, job_from
from app.storage.tables import chunk, job
from shared.ids import JobId

EVENTS_PER_PAGE: Final = 500
ROWS_PER_PAGE: Final = 1_000

_CHUNKS: Final = sa.select(*(c for c in chunk.c if c.name != "pad"))


class JournalPage(msgspec.Struct, frozen=True):
    """Rows of a job's journal; ``last`` says that the job has ended and no rows follow."""

    job: JobRow
    chunks: list[NewChunk]
    last: bool


async def load_page(
    readers: Readers, job_id: JobId, from_event: int, from_number: int = 0
) -> JournalPage | None:
    """The job, and rows that show ``from_event`` and what follows; None when there is no such job.

    The first row may begin before that event. No row that shows it has a number under
    ``from_number``, which spares looking at them.

    Raises:
        PayloadDamaged: a row is not what was written.
    """
    return await undisturbed(_load_page(readers, job_id, from_event, from_number))


async def _load_page(
    readers: Readers, job_id: JobId, from_event: int, from_number: int
) -> JournalPage | None:
    until = from_event + EVENTS_PER_PAGE
    query = (
        _CHUNKS.where(chunk.c.job == job_id, chunk.c.number >= from_number)
        .where(chunk.c.last_event >= from_event, chunk.c.first_event < until)
        .order_by(chunk.c.number)
        .limit(ROWS_PER_PAGE)
    )
    async with readers.snapshot() as connection:
        row = (await connection.execute(JOB.where(job.c.id == job_id))).mappings().first()
        if row is None:
            return None
        rows = (await connection.execute(query)).mappings().all()
    known = job_from(row)
    last = known.state.final and len(rows) < ROWS_PER_PAGE and until >= known.events - 1
    return JournalPage(known, [chunk_from(row) for row in rows], last)


async def read_journal(readers: Readers, job_id: JobId, take: Callable[[NewChunk], None]) -> None:
    """Hand every row of a job's journal over, in order.

    Raises:
        PayloadDamaged: a row is not what was written.
    """
    from_number = from_event = 0
    async with readers.snapshot() as connection:
        while rows := await _rows_after(connection, job_id, from_number, from_event):
            for row in rows:
                take(row)
            from_number, from_event = rows[-1].number + 1, rows[-1].last_event + 1


async def _rows_after(
    connection: AsyncConnection, job_id: JobId, from_number: int, from_event: int
) -> list[NewChunk]:
    query = (
        _CHUNKS.where(chunk.c.job == job_id, chunk.c.number >= from_number)
        .where(chunk.c.first_event < from_event + EVENTS_PER_PAGE)
        .order_by(chunk.c.number)
        .limit(ROWS_PER_PAGE)
    )
    return [chunk_from(row) for row in (await connection.execute(query)).mappings()]
