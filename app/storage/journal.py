"""Reading a job's journal in pages.

An ended job's rows may be joined at any time (``compaction``), so a page is read in one snapshot
together with the job's row, and a whole journal in one snapshot too. Pages are bounded by events,
since a joined row holds many.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from app.storage.frames import NewChunk
from app.storage.job_query import CHUNKS, JOB
from app.storage.readers import Readers, Snapshot
from app.storage.rows import JobRow, chunk_from, job_from
from shared.ids import JobId

EVENTS_PER_PAGE: Final = 500
ROWS_PER_PAGE: Final = 1_000

_JOB: Final = JOB + "WHERE id = :job"
_FROM: Final = CHUNKS + "WHERE job = :job AND number >= :number"
_PAGE: Final = _FROM + (
    " AND last_event >= :first AND first_event < :until ORDER BY number LIMIT :limit"
)
_NEXT: Final = _FROM + " AND first_event < :until ORDER BY number LIMIT :limit"


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
    until = from_event + EVENTS_PER_PAGE
    asked = {
        "job": job_id,
        "number": from_number,
        "first": from_event,
        "until": until,
        "limit": ROWS_PER_PAGE,
    }
    async with readers.snapshot() as snapshot:
        found = await snapshot.rows(_JOB, {"job": job_id})
        if not found:
            return None
        rows = await snapshot.rows(_PAGE, asked)
    known = job_from(found[0])
    last = known.state.final and len(rows) < ROWS_PER_PAGE and until >= known.events - 1
    return JournalPage(known, [chunk_from(row) for row in rows], last)


async def read_journal(readers: Readers, job_id: JobId, take: Callable[[NewChunk], None]) -> None:
    """Hand every row of a job's journal over, in order.

    Raises:
        PayloadDamaged: a row is not what was written.
    """
    from_number = from_event = 0
    async with readers.snapshot() as snapshot:
        while rows := await _rows_after(snapshot, job_id, from_number, from_event):
            for row in rows:
                take(row)
            from_number, from_event = rows[-1].number + 1, rows[-1].last_event + 1


async def _rows_after(
    snapshot: Snapshot, job_id: JobId, from_number: int, from_event: int
) -> list[NewChunk]:
    asked = {
        "job": job_id,
        "number": from_number,
        "until": from_event + EVENTS_PER_PAGE,
        "limit": ROWS_PER_PAGE,
    }
    return [chunk_from(row) for row in await snapshot.rows(_NEXT, asked)]
