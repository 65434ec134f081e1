"""Journals of ended jobs, written as a worker's frames would."""

from collections.abc import Sequence

import msgspec

from app.domain.job import Usage
from app.storage.database import Database
from app.storage.frames import FrameOperation, NewChunk
from app.storage.operations import Committed
from shared.ids import JobId
from shared.messages import Finish, OpenItem, Part, Text
from tests.integration.storage.making import (
    GENERATION,
    NOW,
    job_id,
    make_ending,
    start_job,
)

ROWS_PER_FRAME = 100

_ENCODE = msgspec.msgpack.encode
_TOKENS = msgspec.msgpack.Decoder(list[int])
_PARTS = msgspec.msgpack.Decoder(list[Part])


def row(number: int, first_event: int, parts: Sequence[Part], job: int = 1) -> NewChunk:
    """A journal row of one token, numbered as its index. A finish takes no event."""
    events = sum(not isinstance(part, Finish) for part in parts)
    return NewChunk(
        job=job_id(job),
        number=number,
        first_event=first_event,
        last_event=first_event + events - 1,
        attempt=1,
        choice=0,
        first_token=number,
        token_count=1,
        tokens=_ENCODE([100 + number]),
        parts=_ENCODE(list(parts)),
    )


def rows_of(count: int, job: int = 1) -> list[NewChunk]:
    """A job's rows: the first opens its item, every fifth holds its text back, the last ends it."""
    rows: list[NewChunk] = []
    event = 2
    for number in range(count):
        parts: list[Part] = [] if number % 5 == 4 else [Text(f"word{number} ")]
        if number == 0:
            parts.insert(0, OpenItem(0, "message"))
        if number == count - 1:
            parts.append(Finish("stop"))
        rows.append(row(number, event, parts, job))
        event = rows[-1].last_event + 1
    return rows


class Journals:
    """Writes whole jobs, each frame by frame of the one generation."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seq = 0

    async def ended_job(self, number: int, rows: int, **overrides: object) -> JobId:
        """A job that has run and ended, with so many rows."""
        new = await start_job(self._database, number, **overrides)
        frame = self._frame()
        frame.accepted(
            new.id, 1, now=NOW, prompt_tokens=7, cached_tokens=0, digest="d", fingerprint="f"
        )
        for count, chunk in enumerate(rows_of(rows, number)):
            if count % ROWS_PER_FRAME == 0:
                await self._submit(frame)
                frame = self._frame()
            frame.journal(chunk)
        usage = Usage(prompt_tokens=7, completion_tokens=rows)
        frame.ended(new, make_ending(number, usage=usage), stop_reason=None)
        await self._submit(frame)
        return new.id

    def _frame(self) -> FrameOperation:
        self._seq += 1
        return FrameOperation(GENERATION, self._seq)

    async def _submit(self, frame: FrameOperation) -> None:
        assert await self._database.writer.submit(frame.build()) == Committed()


def told(rows: Sequence[NewChunk]) -> tuple[list[int], list[tuple[int, Part]], list[Part]]:
    """What rows say: tokens, numbered parts, and parts without a number."""
    tokens: list[int] = []
    numbered: list[tuple[int, Part]] = []
    silent: list[Part] = []
    for chunk in rows:
        assert chunk.first_token == len(tokens)
        tokens += _TOKENS.decode(chunk.tokens)
        assert len(tokens) == chunk.first_token + chunk.token_count
        event = chunk.first_event
        for part in _PARTS.decode(chunk.parts):
            if isinstance(part, Finish):
                silent.append(part)
            else:
                numbered.append((event, part))
                event += 1
        assert event == chunk.last_event + 1
    return tokens, numbered, silent
