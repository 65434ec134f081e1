"""Files that a bad disk has changed, and what a server makes of them."""

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from app.services.boot import past_of
from app.storage.database import DATABASE_NAME, Database
from app.storage.errors import StoreError
from app.storage.frames import NewChunk
from app.storage.journal import read_journal
from app.storage.readers import Readers
from app.storage.reading import (
    load_commands,
    load_delivered,
    load_generations,
    load_job,
    load_missing_receipts,
    load_open_attempts,
    load_open_jobs,
    load_prefills,
    load_reports,
    load_request,
)
from app.storage.verify import verify
from shared.ids import JobId

SECTOR: Final = 512
LOG_NAME: Final = f"{DATABASE_NAME}-wal"
TYPED: Final = (StoreError, sqlite3.DatabaseError)
"""What a start is refused with, in one line, and a request answered with: typed errors."""


class Harm(StrEnum):
    """What the disk did."""

    TRUNCATED = "truncated"
    FLIPPED = "bits flipped"
    ZEROED = "a sector of zeros"
    JUNK = "a sector of junk"


class Found(StrEnum):
    """What came of it."""

    REFUSED = "the start was refused"
    NAMED = "what is damaged was named"
    WHOLE = "nothing that is read was touched"
    OLDER = "the end of the log is gone, as after a crash"
    UNCOVERED = "a column of a job that no checksum and no rule covers"


class Silent(AssertionError):
    """Wrong data was served and nothing said so."""


def harm(directory: Path, chance: random.Random) -> tuple[str, Harm]:
    """Damage one of the files; which, and how."""
    name = chance.choice((DATABASE_NAME, DATABASE_NAME, LOG_NAME))
    path, kind = directory / name, chance.choice(list(Harm))
    content = bytearray(path.read_bytes())
    start = chance.randrange(len(content))
    match kind:
        case Harm.TRUNCATED:
            del content[start:]
        case Harm.FLIPPED:
            for _ in range(chance.randint(1, 8)):
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        case Harm.ZEROED:
            content[start : start + SECTOR] = bytes(len(content[start : start + SECTOR]))
        case Harm.JUNK:
            content[start : start + SECTOR] = chance.randbytes(len(content[start : start + SECTOR]))
    path.write_bytes(content)
    return name, kind


@dataclass(slots=True)
class Served:
    """What the store's readers say of every job; an error where they say that it is damaged."""

    jobs: dict[str, Any] = field(default_factory=dict[str, Any])
    requests: dict[str, Any] = field(default_factory=dict[str, Any])
    tokens: dict[str, Any] = field(default_factory=dict[str, Any])
    parts: dict[str, Any] = field(default_factory=dict[str, Any])
    reports: dict[str, Any] = field(default_factory=dict[str, Any])
    errors: int = 0


async def open_and_read(directory: Path, jobs: Sequence[str]) -> tuple[Served, bool]:
    """Start on it as a server does, and read everything of these jobs; whether ``verify`` names
    anything.

    Raises:
        StoreError, sqlite3.DatabaseError: it does not start, and says why.
    """
    database = await Database.open(directory)
    try:
        await _boot(database)
        served = Served()
        for job in jobs:
            await _read(database.readers, JobId(job), served)
        await _read_reports(database.readers, served)
        return served, bool(await verify(database.readers))
    finally:
        await database.close()


async def _boot(database: Database) -> None:
    """What a start reads."""
    readers = database.readers
    await past_of(database)
    await load_open_jobs(readers)
    await load_open_attempts(readers)
    await load_delivered(readers)
    await load_prefills(readers)
    await load_missing_receipts(readers)
    for generation in await load_generations(readers):
        await load_commands(readers, generation.id)


async def _read(readers: Readers, job: JobId, served: Served) -> None:
    served.jobs[job] = await _typed(served, lambda: load_job(readers, job))
    served.requests[job] = await _typed(served, lambda: load_request(readers, job))
    rows: list[NewChunk] = []
    if await _typed(served, lambda: read_journal(readers, job, rows.append)) is not Damaged:
        served.tokens[job] = [t for row in rows for t in msgspec.msgpack.decode(row.tokens)]
        served.parts[job] = [
            p for row in rows if row.parts for p in msgspec.msgpack.decode(row.parts)
        ]


async def _read_reports(readers: Readers, served: Served) -> None:
    reports = await _typed(served, lambda: load_reports(readers, limit=10_000))
    if reports is not Damaged:
        served.reports = {report.id: report for report in reports}


class Damaged:
    """Stands for what was answered with a typed error."""


async def _typed(served: Served, read: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await read()
    except TYPED:
        served.errors += 1
        return Damaged


def judged(directory: Path, truth: Served, name: str) -> Found:
    """What became of a start on this directory.

    Raises:
        Silent: what is served is not the truth, and nobody says so.
    """
    try:
        served, named = asyncio.run(open_and_read(directory, list(truth.jobs)))
    except TYPED:
        return Found.REFUSED
    if named or served.errors:
        return Found.NAMED
    different = [what for what in _TOLD if getattr(served, what) != getattr(truth, what)]
    if not different:
        return Found.WHOLE
    if name == LOG_NAME and _is_older(truth, served):
        return Found.OLDER
    if (
        different == ["jobs"]
        and served.jobs.keys() == truth.jobs.keys()
        and all(served.jobs.values())
    ):
        return Found.UNCOVERED
    raise Silent(f"{different}: {_first_difference(truth, served, different[-1])}")


_TOLD: Final = ("jobs", "requests", "tokens", "parts", "reports")


def _is_older(truth: Served, served: Served) -> bool:
    """Whether this is what was there before the last commits: less of everything, nothing else."""
    return (
        all(request in (truth.requests[job], None) for job, request in served.requests.items())
        and all(_begins(truth.tokens[job], said) for job, said in served.tokens.items())
        and all(_begins(truth.parts[job], said) for job, said in served.parts.items())
        and all(served.reports[id_] == truth.reports.get(id_) for id_ in served.reports)
    )


def _begins(whole: Sequence[Any], beginning: Sequence[Any]) -> bool:
    return list(whole[: len(beginning)]) == list(beginning)


def _first_difference(truth: Served, served: Served, what: str) -> str:
    one, other = getattr(truth, what), getattr(served, what)
    return next(
        f"{one.get(key)!r} is {other.get(key)!r}" for key in one if one[key] != other.get(key)
    )
