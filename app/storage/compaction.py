"""Joining the journal of an ended job into few rows.

While a job runs each step adds a row; once it has ended, neighbours of one attempt and choice are
put together: the same tokens, parts and event numbers, in fewer rows. Event numbers never change.
A joined row has the ``number`` of its last: whoever reads on from a number finds what followed,
though the row may begin with what is known already.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from app.storage.encoding import micros, moment
from app.storage.frames import NewChunk, journal_step
from app.storage.operations import Operation, Params, Rank, Statement, Step
from app.storage.readers import Readers
from shared.ids import JobId

EVENTS_MAX: Final = 256
"""Events in one joined row."""
BYTES_MAX: Final = 256 * 1024
"""Bytes in one joined row."""
ROWS_MAX: Final = 500
"""Rows of one operation, so that the writer is never away for long."""

CURSOR: Final = "compacted_to"

_DROP: Final = Statement(
    "chunk.drop",
    Rank.CHUNK_DROP,
    "DELETE FROM chunk WHERE job = :job AND number = :number"
    " AND EXISTS (SELECT 1 FROM job WHERE id = :job AND finalized_at IS NOT NULL)",
)

_MOVE: Final = Statement(
    "meta.compacted",
    Rank.META,
    "INSERT INTO meta (key, value) VALUES (:key, :value)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
)

_ENDED: Final = """
SELECT id, finalized_at,
    EXISTS (SELECT 1 FROM chunk WHERE chunk.job = job.id LIMIT 1 OFFSET 1) AS scattered
FROM job
WHERE finalized_at IS NOT NULL AND keep_until IS NULL
    AND finalized_at > :after AND finalized_at <= :until
ORDER BY finalized_at LIMIT :limit
"""

_ARRAY: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ENCODER: Final = msgspec.msgpack.Encoder()


class Ended(msgspec.Struct, frozen=True):
    """An ended job, and whether its journal has several rows."""

    id: JobId
    finalized_at: datetime
    scattered: bool


def compact(rows: Sequence[NewChunk]) -> Operation | None:
    """Join neighbours among these rows of one ended job, which follow each other; None when none
    can be joined. Void when the job was deleted meanwhile."""
    groups = [group for group in _groups(rows) if len(group) > 1]
    if not groups:
        return None
    steps: list[Step] = []
    for row in (row for group in groups for row in group):
        params: Params = {"job": row.job, "number": row.number}
        steps.append(Step(_DROP, params, row.job))
    steps += [journal_step(_joined(group)) for group in groups]
    return Operation(name="compact", subjects=(rows[0].job,), steps=tuple(steps))


def move_cursor(to: datetime) -> Operation:
    """Jobs that ended up to then need not be looked at again."""
    params: Params = {"key": CURSOR, "value": str(micros(to))}
    return Operation(name="compacted", subjects=(CURSOR,), steps=(Step(_MOVE, params),))


async def load_cursor(readers: Readers) -> datetime:
    """Up to where jobs were looked at."""
    value = await readers.value("SELECT value FROM meta WHERE key = :key", {"key": CURSOR})
    return moment(int(value or 0))


async def load_ended(readers: Readers, after: datetime, until: datetime, limit: int) -> list[Ended]:
    """Jobs without a keep time of their own that ended in this time, oldest first."""
    params: Params = {"after": micros(after), "until": micros(until), "limit": limit}
    return [
        Ended(row["id"], moment(row["finalized_at"]), bool(row["scattered"]))
        for row in await readers.rows(_ENDED, params)
    ]


def _groups(rows: Iterable[NewChunk]) -> list[list[NewChunk]]:
    """The rows cut into runs that may each become one."""
    groups: list[list[NewChunk]] = []
    events = size = 0
    for row in rows:
        added, weight = _events(row), _bytes(row)
        fits = events + added <= EVENTS_MAX and size + weight <= BYTES_MAX
        if groups and fits and _follows(groups[-1][-1], row):
            groups[-1].append(row)
            events, size = events + added, size + weight
        else:
            groups.append([row])
            events, size = added, weight
    return groups


def _follows(row: NewChunk, following: NewChunk) -> bool:
    return (
        following.attempt == row.attempt
        and following.choice == row.choice
        and following.first_event == row.last_event + 1
        and following.first_token == row.first_token + row.token_count
        and bool(following.logprobs) == bool(row.logprobs)
    )


def _joined(group: Sequence[NewChunk]) -> NewChunk:
    first, last = group[0], group[-1]
    return NewChunk(
        job=last.job,
        number=last.number,
        first_event=first.first_event,
        last_event=last.last_event,
        attempt=last.attempt,
        choice=last.choice,
        first_token=first.first_token,
        token_count=sum(row.token_count for row in group),
        tokens=_concatenated([row.tokens for row in group]),
        logprobs=_concatenated([row.logprobs for row in group]) if first.logprobs else b"",
        parts=_concatenated([row.parts for row in group]),
    )


def _concatenated(payloads: Iterable[bytes]) -> bytes:
    """One array of the items of these, which stay as they are."""
    return _ENCODER.encode([item for p in payloads if p for item in _ARRAY.decode(p)])


def _events(row: NewChunk) -> int:
    return row.last_event - row.first_event + 1


def _bytes(row: NewChunk) -> int:
    return len(row.tokens) + len(row.logprobs) + len(row.parts)
