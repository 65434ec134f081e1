"""I4: what a follower was shown is never unsaid. The journal of a job has no gap of any kind.

Rows are joined when a job has ended, so their own numbers may skip some: events and tokens may not.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import msgspec

from app.domain.numbering import numbers
from app.storage.verify.violation import Row, Rule, Violation, broken, first
from shared.messages import Part

FIRST_OUTPUT: Final = 2
"""The event number of a job's first output: ``created`` has 0, the start 1."""

_TOKENS: Final = msgspec.msgpack.Decoder(tuple[int, ...])
_LOGPROBS: Final = msgspec.msgpack.Decoder(tuple[float, ...])
_PARTS: Final = msgspec.msgpack.Decoder(tuple[Part, ...])

_ROWS: Final = (
    "SELECT job, number, first_event, last_event, attempt, choice, first_token, token_count,"
    " tokens, logprobs, parts FROM chunk ORDER BY job, number"
)

# The events of a job: created, the start, one per part shown, the end.
_LIFECYCLE: Final = "1 + (started_at IS NOT NULL) + (finalized_at IS NOT NULL)"
_NUMBERS: Final = (
    Rule(
        "has {} events, but {} happened",
        f"SELECT id, events, happened FROM (SELECT id, events, {_LIFECYCLE}"  # noqa: S608
        " + coalesce((SELECT sum(last_event - first_event + 1) FROM chunk WHERE chunk.job = job.id)"
        ", 0) AS happened FROM job) WHERE events <> happened",
    ),
    Rule(
        "has output, but never started",
        "SELECT id FROM job WHERE started_at IS NULL"
        " AND EXISTS (SELECT 1 FROM chunk WHERE chunk.job = job.id)",
    ),
)


@dataclass(slots=True)
class _Expected:
    """What the next row of a job's journal must be."""

    event: int = FIRST_OUTPUT
    attempt: int = 1
    token: dict[int, int] = field(default_factory=dict[int, int])


def journal(driver: sqlite3.Connection) -> list[Violation]:
    """I4: events and tokens are numbered without a gap, and hold what they say."""
    return first([*_breaks(driver), *broken(driver, "I4", *_NUMBERS)])


def _breaks(driver: sqlite3.Connection) -> list[Violation]:
    """The first break of each journal: what follows one only follows from it."""
    journals = groupby(driver.execute(_ROWS), key=_job_of)
    return first(
        Violation("I4", job, f"row {row[1]} of its output {problem}")
        for job, rows in journals
        for row, problem in _first_break(rows)
    )


def _job_of(row: Row) -> str:
    return row[0]


def _first_break(rows: Iterator[Row]) -> list[tuple[Row, str]]:
    expected = _Expected()
    for row in rows:
        problem = _problem(expected, row) or _content_problem(row)
        if problem is not None:
            return [(row, problem)]
    return []


def _problem(expected: _Expected, row: Row) -> str | None:
    """What is wrong with the row's numbers; if nothing is, the next row is expected."""
    first_event, last_event, attempt, choice, first_token, token_count = row[2:8]
    token = expected.token.get(choice, 0)
    if first_event != expected.event:
        return f"begins at event {first_event}, not {expected.event}"
    if first_token != token:
        return f"begins at token {first_token} of choice {choice}, not {token}"
    if attempt < expected.attempt:
        return f"is of attempt {attempt}, behind one of {expected.attempt}"
    expected.event = last_event + 1
    expected.attempt = attempt
    expected.token[choice] = token + token_count
    return None


def _content_problem(row: Row) -> str | None:
    """What is wrong with the row's payloads."""
    first_event, last_event, token_count = row[2], row[3], row[7]
    try:
        tokens = _TOKENS.decode(row[8]) if row[8] else ()
        logprobs = _LOGPROBS.decode(row[9]) if row[9] else ()
        parts = _PARTS.decode(row[10]) if row[10] else ()
    except msgspec.DecodeError as error:
        return f"cannot be read: {error}"
    if len(tokens) != token_count:
        return f"holds {len(tokens)} tokens, not {token_count}"
    if logprobs and len(logprobs) != token_count:
        return f"holds {len(logprobs)} log-probabilities for {token_count} tokens"
    shown = last_event - first_event + 1
    if numbers(parts) != shown:
        return f"shows {numbers(parts)} events, not {shown}"
    return None
