"""What is read from the store: jobs, attempts, generations, commands, the journal, reports."""

from collections import Counter

import sqlalchemy as sa

from app.domain.job import JobState
from app.storage.encoding import checksum
from app.storage.errors import PayloadDamaged
from app.storage.frames import NewChunk
from app.storage.job_query import JOB
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
from app.storage.tables import (
    attempt,
    chunk,
    command,
    drain,
    generation,
    job,
    receipt,
    report,
    schedule,
)
from shared.ids import CommandId, GenerationId, JobId, id_body

_CHUNK = sa.select(*(column for column in chunk.c if column.name != "pad"))


async def load_job(readers: Readers, job_id: JobId, tenant: str | None = None) -> JobRow | None:
    """This job, if there is one (of this tenant, if one is named)."""
    query = JOB.where(job.c.id == job_id)
    if tenant is not None:
        query = query.where(job.c.tenant == tenant)
    row = await readers.row(query)
    return None if row is None else job_from(row)


async def load_request(readers: Readers, job_id: JobId) -> bytes | None:
    """The job's encoded request; None for attached jobs and unknown ones.

    Raises:
        PayloadDamaged: it is not what was submitted.
    """
    row = await readers.row(
        sa.select(job.c.request, job.c.request_checksum).where(job.c.id == job_id)
    )
    if row is None or row["request"] is None:
        return None
    body = bytes(row["request"])
    if checksum(body) != row["request_checksum"]:
        raise PayloadDamaged("job", job_id)
    return body


async def load_open_jobs(readers: Readers) -> list[JobRow]:
    """All jobs that have not ended, oldest first: what a start has to deal with."""
    rows = await readers.rows(JOB.where(job.c.finalized_at.is_(None)))
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
    query = JOB.order_by(job.c.id.desc()).limit(limit)
    if tenant is not None:
        query = query.where(job.c.tenant == tenant)
    if after is not None:
        query = query.where(job.c.id < after)
    if states:
        query = query.where(job.c.state.in_(states))
    if model is not None:
        query = query.where(job.c.model == model)
    if tag is not None:
        path = f'$."{tag[0]}"'
        query = query.where(sa.func.json_extract(job.c.tags, path) == tag[1])
    return [job_from(row) for row in await readers.rows(query)]


async def load_attempts(readers: Readers, job_id: JobId) -> list[AttemptRow]:
    """All attempts at a job, in order."""
    query = sa.select(attempt).where(attempt.c.job == job_id).order_by(attempt.c.number)
    return [attempt_from(row) for row in await readers.rows(query)]


async def load_open_attempts(
    readers: Readers, generation_id: GenerationId | None = None
) -> list[AttemptRow]:
    """Attempts that have not ended: what each generation holds, by the store's account."""
    query = sa.select(attempt).where(attempt.c.outcome.is_(None))
    if generation_id is not None:
        query = query.where(attempt.c.generation == generation_id)
    return [attempt_from(row) for row in await readers.rows(query)]


async def load_delivered(readers: Readers) -> dict[JobId, dict[int, int]]:
    """Completion tokens of each open job so far, per choice, over all its attempts."""
    query = (
        sa.select(attempt.c.job, attempt.c.choice_counts)
        .join(job, job.c.id == attempt.c.job)
        .where(job.c.finalized_at.is_(None), attempt.c.delivered_tokens > 0)
    )
    delivered: dict[JobId, Counter[int]] = {}
    for row in await readers.rows(query):
        counts = delivered.setdefault(JobId(row["job"]), Counter())
        counts.update(choice_counts_from(row["choice_counts"]))
    return {job_id: dict(counts) for job_id, counts in delivered.items()}


async def load_prefills(readers: Readers) -> dict[JobId, int]:
    """Tokens of its context that each open job had computed in the attempt that got furthest, of
    those that have ended."""
    query = (
        sa.select(attempt.c.job, sa.func.max(attempt.c.prefill_tokens).label("furthest"))
        .join(job, job.c.id == attempt.c.job)
        .where(job.c.finalized_at.is_(None), attempt.c.outcome.is_not(None))
        .group_by(attempt.c.job)
    )
    return {JobId(row["job"]): row["furthest"] for row in await readers.rows(query)}


async def load_generations(readers: Readers) -> list[GenerationRow]:
    """Generations whose process may still live, oldest first."""
    query = sa.select(generation).where(generation.c.state != "gone").order_by(generation.c.id)
    return [generation_from(row) for row in await readers.rows(query)]


async def load_generation(readers: Readers, generation_id: GenerationId) -> GenerationRow | None:
    """This generation, if there was one."""
    row = await readers.row(sa.select(generation).where(generation.c.id == generation_id))
    return None if row is None else generation_from(row)


async def load_missing_receipts(readers: Readers) -> list[GenerationId]:
    """Generations that are over and have no receipt."""
    query = sa.select(generation.c.id).where(
        generation.c.state.in_(["lost", "gone"]),
        generation.c.id.not_in(sa.select(receipt.c.generation)),
    )
    return [GenerationId(row["id"]) for row in await readers.rows(query)]


async def load_commands(readers: Readers, generation_id: GenerationId) -> list[CommandRow]:
    """Commands that this worker has not answered, in the order they are sent in."""
    query = sa.select(command).where(command.c.generation == generation_id).order_by(command.c.id)
    return [command_from(row) for row in await readers.rows(query)]


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
    query = (
        _CHUNK.where(chunk.c.job == job_id, chunk.c.number >= from_number)
        .order_by(chunk.c.number)
        .limit(limit)
    )
    if from_event:
        query = query.where(chunk.c.last_event >= from_event)
    return [chunk_from(row) for row in await readers.rows(query)]


async def load_reports(readers: Readers, *, after: int = 0, limit: int = 100) -> list[ReportRow]:
    """A page of the feed, from behind this place on.

    Raises:
        PayloadDamaged: a payload is not what was written.
    """
    query = sa.select(report).where(report.c.seq > after).order_by(report.c.seq).limit(limit)
    return [report_from(row) for row in await readers.rows(query)]


async def highest_command(readers: Readers) -> CommandId:
    """The highest number that a command ever had, answered ones included; 0 at first."""
    query = sa.text("SELECT seq FROM sqlite_sequence WHERE name = 'command'")
    return CommandId(await readers.value(query) or 0)


async def highest_id(readers: Readers) -> str | None:
    """The highest body of a minted id in use, for ``IdMint``; None in an empty store."""
    highest = [
        await readers.value(sa.select(sa.func.max(job.c.id))),
        await readers.value(sa.select(sa.func.max(generation.c.id))),
        await readers.value(sa.select(sa.func.max(drain.c.id))),
        await readers.value(sa.select(sa.func.max(schedule.c.id))),
    ]
    return max((id_body(found) for found in highest if found), default=None)
