"""What is read from the store: jobs, attempts, generations, commands, the journal, reports."""

from collections import Counter
from typing import Final

from app.domain.job import JobState
from app.storage.encoding import checksum
from app.storage.errors import PayloadDamaged
from app.storage.frames import NewChunk
from app.storage.job_query import CHUNKS, JOB
from app.storage.readers import Readers
from app.storage.rows import (
    AttemptRow,
    CommandRow,
    GenerationRow,
    JobRow,
    ReportRow,
    attempt_from,
    choice_counts_from,
    chunk_from,
    command_from,
    generation_from,
    job_from,
    report_from,
)
from app.storage.sql import json_list
from shared.ids import GenerationId, JobId, id_body

_REQUEST: Final = "SELECT request, request_checksum FROM job WHERE id = :job"
_DELIVERED: Final = """
SELECT attempt.job, attempt.choice_counts FROM attempt JOIN job ON job.id = attempt.job
WHERE job.finalized_at IS NULL AND attempt.delivered_tokens > 0
"""
_PREFILLS: Final = """
SELECT attempt.job, max(attempt.prefill_tokens) AS furthest
FROM attempt JOIN job ON job.id = attempt.job
WHERE job.finalized_at IS NULL AND attempt.outcome IS NOT NULL
GROUP BY attempt.job
"""
_MISSING_RECEIPTS: Final = """
SELECT id FROM generation
WHERE state IN ('lost', 'gone') AND id NOT IN (SELECT generation FROM receipt)
"""


async def load_job(readers: Readers, job_id: JobId, tenant: str | None = None) -> JobRow | None:
    """This job, if there is one (of this tenant, if one is named)."""
    of_tenant = "" if tenant is None else " AND tenant = :tenant"
    query = f"{JOB} WHERE id = :job{of_tenant}"
    row = await readers.row(query, {"job": job_id, "tenant": tenant})
    return None if row is None else job_from(row)


async def load_request(readers: Readers, job_id: JobId) -> bytes | None:
    """The job's encoded request; None for attached jobs and unknown ones.

    Raises:
        PayloadDamaged: it is not what was submitted.
    """
    row = await readers.row(_REQUEST, {"job": job_id})
    if row is None or row["request"] is None:
        return None
    body = bytes(row["request"])
    if checksum(body) != row["request_checksum"]:
        raise PayloadDamaged("job", job_id)
    return body


async def load_open_jobs(readers: Readers) -> list[JobRow]:
    """All jobs that have not ended, oldest first: what a start has to deal with."""
    rows = await readers.rows(JOB + "WHERE finalized_at IS NULL")
    return sorted(map(job_from, rows), key=lambda row: row.new.id)


async def load_jobs(
    readers: Readers,
    tenant: str | None,
    *,
    after: JobId | None = None,
    states: tuple[JobState, ...] = (),
    tag: tuple[str, str] | None = None,
    model: str | None = None,
    limit: int = 100,
) -> list[JobRow]:
    """A page of a tenant's jobs, newest first, from before ``after`` on."""
    conditions = {
        "tenant = :tenant": tenant is not None,
        "id < :after": after is not None,
        "state IN (SELECT value FROM json_each(:states))": bool(states),
        "model = :model": model is not None,
        "json_extract(tags, :tag) = :tag_value": tag is not None,
    }
    wanted = " AND ".join(condition for condition, holds in conditions.items() if holds)
    params = {
        "tenant": tenant,
        "after": after,
        "states": json_list(states),
        "model": model,
        "tag": tag and f'$."{tag[0]}"',
        "tag_value": tag and tag[1],
        "limit": limit,
    }
    query = f"{JOB} WHERE {wanted or 'true'} ORDER BY id DESC LIMIT :limit"
    return [job_from(row) for row in await readers.rows(query, params)]


async def load_attempts(readers: Readers, job_id: JobId) -> list[AttemptRow]:
    """All attempts at a job, in order."""
    rows = await readers.rows(
        "SELECT * FROM attempt WHERE job = :job ORDER BY number", {"job": job_id}
    )
    return [attempt_from(row) for row in rows]


async def load_open_attempts(
    readers: Readers, generation_id: GenerationId | None = None
) -> list[AttemptRow]:
    """Attempts that have not ended: what each generation holds, by the store's account."""
    query = "SELECT * FROM attempt WHERE outcome IS NULL"
    if generation_id is not None:
        query += " AND generation = :generation"
    rows = await readers.rows(query, {"generation": generation_id})
    return [attempt_from(row) for row in rows]


async def load_delivered(readers: Readers) -> dict[JobId, dict[int, int]]:
    """Completion tokens of each open job so far, per choice, over all its attempts."""
    delivered: dict[JobId, Counter[int]] = {}
    for row in await readers.rows(_DELIVERED):
        counts = delivered.setdefault(JobId(row["job"]), Counter())
        counts.update(choice_counts_from(row["choice_counts"]))
    return {job_id: dict(counts) for job_id, counts in delivered.items()}


async def load_prefills(readers: Readers) -> dict[JobId, int]:
    """Tokens of its context that each open job had computed in the attempt that got furthest, of
    those that have ended."""
    return {JobId(row["job"]): row["furthest"] for row in await readers.rows(_PREFILLS)}


async def load_generations(readers: Readers) -> list[GenerationRow]:
    """Generations whose process may still live, oldest first."""
    rows = await readers.rows("SELECT * FROM generation WHERE state <> 'gone' ORDER BY id")
    return [generation_from(row) for row in rows]


async def load_generation(readers: Readers, generation_id: GenerationId) -> GenerationRow | None:
    """This generation, if there was one."""
    row = await readers.row("SELECT * FROM generation WHERE id = :id", {"id": generation_id})
    return None if row is None else generation_from(row)


async def load_missing_receipts(readers: Readers) -> list[GenerationId]:
    """Generations that are over and have no receipt."""
    return [GenerationId(row["id"]) for row in await readers.rows(_MISSING_RECEIPTS)]


async def load_commands(readers: Readers, generation_id: GenerationId) -> list[CommandRow]:
    """Commands that this worker has not answered, ``RunJob`` apart, as they are to be sent."""
    rows = await readers.rows(
        "SELECT * FROM command WHERE generation = :generation ORDER BY id",
        {"generation": generation_id},
    )
    return [command_from(row) for row in rows]


async def load_chunks(
    readers: Readers,
    job_id: JobId,
    *,
    from_event: int = 0,
    from_number: int = 0,
    limit: int = 1000,
) -> list[NewChunk]:
    """A page of a job's journal: rows ``from_number`` on that show ``from_event`` or a later one.
    Rows that show nothing are found by ``from_event`` 0 alone.

    Raises:
        PayloadDamaged: a row is not what was written.
    """
    shown = " AND last_event >= :event" if from_event else ""
    query = f"{CHUNKS} WHERE job = :job AND number >= :number{shown} ORDER BY number LIMIT :limit"
    params = {"job": job_id, "number": from_number, "event": from_event, "limit": limit}
    return [chunk_from(row) for row in await readers.rows(query, params)]


async def load_reports(readers: Readers, *, after: int = 0, limit: int = 100) -> list[ReportRow]:
    """A page of the feed, from behind this place on.

    Raises:
        PayloadDamaged: a payload is not what was written.
    """
    rows = await readers.rows(
        "SELECT * FROM report WHERE seq > :after ORDER BY seq LIMIT :limit",
        {"after": after, "limit": limit},
    )
    return [report_from(row) for row in rows]


async def highest_id(readers: Readers) -> str | None:
    """The highest body of a minted id in use, for ``IdMint``; None in an empty store."""
    highest = [
        await readers.value("SELECT max(id) FROM job"),
        await readers.value("SELECT max(id) FROM generation"),
        await readers.value("SELECT max(id) FROM drain"),
        await readers.value("SELECT max(id) FROM schedule"),
    ]
    return max((id_body(found) for found in highest if found), default=None)
