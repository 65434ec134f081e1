"""Reading back what a durable job needs to go on: its request and its output so far.

Waiting jobs keep neither in memory; both are read when a worker has room. A row whose payload no
longer matches its checksum fails that job, typed, and nothing else.
"""

from collections.abc import Generator
from contextlib import contextmanager

import msgspec
import structlog

from app.domain.errors import StorageDamaged
from app.domain.fairness import estimate
from app.domain.output import JobOutput, OutOfOrder
from app.services.ledger import Ledger, LiveJob
from app.storage.database import Database
from app.storage.errors import PayloadDamaged, StoreDamaged
from app.storage.frames import NewChunk
from app.storage.journal import read_journal
from app.storage.reading import load_job, load_request
from app.storage.rows import JobRow
from shared.failures import Failure
from shared.ids import JobId
from shared.messages import Part
from shared.requests import JobRequest

_REQUEST = msgspec.msgpack.Decoder(JobRequest)
_TOKENS = msgspec.msgpack.Decoder(tuple[int, ...])
_PARTS = msgspec.msgpack.Decoder(tuple[Part, ...])
_LOGPROBS = msgspec.msgpack.Decoder(tuple[float, ...])
_ENCODER = msgspec.msgpack.Encoder()
_log = structlog.get_logger("recall")

DAMAGED = Failure(
    code="storage_damaged", message="What was stored of this job is damaged and cannot be read."
)


def encode_tokens(tokens: tuple[int, ...]) -> bytes:
    """Token ids for a journal row."""
    return _ENCODER.encode(tokens)


def encode_parts(parts: tuple[Part, ...]) -> bytes:
    """Parts for a journal row."""
    return _ENCODER.encode(parts)


def encode_logprobs(logprobs: tuple[float, ...]) -> bytes:
    """Log-probabilities for a journal row."""
    return _ENCODER.encode(logprobs) if logprobs else b""


def decode_parts(chunk: NewChunk) -> tuple[Part, ...]:
    """The parts of a journal row."""
    return _PARTS.decode(chunk.parts)


def encode_request(request: JobRequest) -> bytes:
    """The request for a job's row."""
    return _ENCODER.encode(request)


class _Sizes(msgspec.Struct):
    """Of a job's settings, what tells how large it is."""

    chars: int = 0
    max_tokens: int | None = None


_SIZES = msgspec.json.Decoder(_Sizes)


def cost_of(settings: bytes) -> int:
    """Tokens that a job with these settings is expected to take."""
    sizes = _SIZES.decode(settings) if settings else _Sizes()
    return estimate(sizes.chars, sizes.max_tokens)


def take_row(live: LiveJob, row: JobRow) -> None:
    """What the row says of the job's past."""
    live.next_seq = row.events
    live.failures, live.losses, live.preemptions = row.failures, row.losses, row.preemptions
    live.started_at, live.shown_start = row.started_at, row.started_at is not None
    live.prompt_tokens, live.cached_tokens = row.usage.prompt_tokens, row.usage.cached_tokens
    live.prompt_digest, live.fingerprint = row.prompt_digest, row.fingerprint


class Recall:
    """Reads jobs back from the store."""

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._readers = database.readers
        self._ledger = ledger

    async def complete(self, live: LiveJob) -> None:
        """See that the job's request and output are in memory.

        Raises:
            PayloadDamaged: a payload is not what was written.
            msgspec.MsgspecError: a payload cannot be read.
        """
        if live.request is None and live.journaled:
            body = await load_request(self._readers, live.id)
            if body is not None:
                self._ledger.remember_request(live, _REQUEST.decode(body), len(body))
        if not live.loaded:
            await self._load_output(live)

    async def request(self, job: JobId) -> JobRequest | None:
        """The job's request; None when none was stored.

        Raises:
            StorageDamaged: it is not what was submitted.
        """
        with damage_told(job):
            body = await load_request(self._readers, job)
            return None if body is None else _REQUEST.decode(body)

    async def output(self, job: JobId) -> JobOutput:
        """The job's output so far, from the journal.

        Raises:
            StorageDamaged: it is not what was written.
        """
        with damage_told(job):
            output, _ = await self._read(job)
            return output

    async def _load_output(self, live: LiveJob) -> None:
        output, next_chunk = await self._read(live.id)
        row = await load_job(self._readers, live.id)
        live.output, live.next_chunk = output, next_chunk
        if row is not None:
            take_row(live, row)
        live.loaded = True

    async def _read(self, job: JobId) -> tuple[JobOutput, int]:
        output, next_chunk = JobOutput(), 0

        def take(chunk: NewChunk) -> None:
            nonlocal next_chunk
            replay(output, chunk)
            next_chunk = chunk.number + 1

        await read_journal(self._readers, job, take)
        return output, next_chunk


@contextmanager
def damage_told(job: JobId) -> Generator[None]:
    """Whoever reads a job that is damaged on disk is told so, and nobody else is.

    Raises:
        StorageDamaged: what was stored does not match its checksum, or cannot be read.
    """
    try:
        yield
    except (PayloadDamaged, StoreDamaged, msgspec.MsgspecError, OutOfOrder) as error:
        _log.error("job_damaged", job=job, error=str(error))
        raise StorageDamaged from error


def replay(output: JobOutput, chunk: NewChunk) -> None:
    """Add one journal row to an output."""
    output.apply(chunk.choice, chunk.first_token, _TOKENS.decode(chunk.tokens), decode_parts(chunk))
