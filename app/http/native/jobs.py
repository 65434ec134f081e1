"""What can be done with jobs: each request is read, handed to one service, and answered."""

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from litestar import MediaType, Request, Response

from app.domain.draft import DRAWN_SEED_BITS, JobDraft
from app.domain.errors import InvalidRequest
from app.http.body import read_body
from app.http.explaining import within
from app.http.native.decode import decode_bulk, decode_job, to_draft
from app.http.native.idempotency import REPLAYED, idempotency_key
from app.http.native.query import listing, tenant_of
from app.http.native.render import job_list, job_object
from app.http.native.schema import BulkAnswer, BulkSubmission
from app.http.ports import Ports, Ticket
from app.http.query import Query
from app.http.request_id import name_job
from shared.ids import JobId

PATH: Final = "/v1/jobs"

BULK_AFTER_MAX: Final = 5_000
"""Jobs that those of one bulk may wait for, all together."""

DRAFTS_PER_TURN: Final = 32
"""Of a bulk, jobs checked before the event loop gets its turn."""

HttpRequest = Request[Any, Any, Any]

_JSON: Final = msgspec.json.Encoder()


class _Nothing(msgspec.Struct, frozen=True):
    """What a retry is asked with."""


class JobsDoor:
    """Turns requests about jobs into calls of the services."""

    def __init__(self, ports: Ports[Any], body_bytes_max: int) -> None:
        self._ports = ports
        self._body_bytes_max = body_bytes_max

    async def submit(self, request: HttpRequest) -> Response[bytes]:
        """A new job, or the one that the idempotency key stands for.

        Raises:
            JobServerError: when it is refused.
        """
        Query(request)
        job = decode_job(await read_body(request, self._body_bytes_max))
        key = idempotency_key(request.headers, PATH, job)
        draft = to_draft(job, _draw_seed, key)
        ticket: Ticket = await self._ports.submission.submit(draft)
        return await self._accepted(request, ticket, draft.tenant)

    async def submit_many(self, request: HttpRequest) -> Response[bytes]:
        """New jobs, all or none, or those that the idempotency key stands for.

        Raises:
            JobServerError: when one of them is refused, naming it.
        """
        Query(request)
        bulk = decode_bulk(await read_body(request, self._body_bytes_max))
        key = idempotency_key(request.headers, f"{PATH}/bulk", bulk)
        made = await self._ports.submission.submit_many(await _drafts(bulk), key)
        answer = BulkAnswer(ids=list(made.ids))
        return _answer(answer, 202, REPLAYED if made.replayed else {})

    async def get(self, request: HttpRequest, job_id: JobId) -> Response[bytes]:
        """One job.

        Raises:
            JobNotFound: there is none.
        """
        return _answer(job_object(await self._ports.jobs.get(job_id, tenant_of(request))))

    async def list(self, request: HttpRequest) -> Response[bytes]:
        """A page of jobs.

        Raises:
            InvalidRequest: the query makes no sense.
        """
        asked = listing(request)
        page = await self._ports.jobs.list(
            asked.tenant, asked.states, asked.tag, asked.model, asked.after, asked.limit
        )
        return _answer(job_list(page))

    async def cancel(self, request: HttpRequest, job_id: JobId) -> Response[bytes]:
        """The job, asked to stop.

        Raises:
            JobNotFound: there is none.
        """
        tenant = tenant_of(request)
        return _answer(job_object(await self._ports.cancellation.cancel(job_id, tenant)))

    async def retry(self, request: HttpRequest, job_id: JobId) -> Response[bytes]:
        """A new job in the place of one that has ended.

        Raises:
            JobServerError: when it is refused.
        """
        tenant = tenant_of(request)
        key = idempotency_key(request.headers, f"{PATH}/{job_id}/retry", _Nothing())
        ticket: Ticket = await self._ports.submission.retry(job_id, tenant, key)
        return await self._accepted(request, ticket, tenant)

    async def _accepted(self, request: HttpRequest, ticket: Ticket, tenant: str) -> Response[bytes]:
        ticket.follower.close()
        name_job(request.scope, ticket.job_id)
        job = await self._ports.jobs.get(ticket.job_id, tenant)
        return _answer(job_object(job), 202, REPLAYED if ticket.replayed else {})


async def _drafts(bulk: BulkSubmission) -> list[JobDraft]:
    drafts: list[JobDraft] = []
    for index, job in enumerate(bulk.jobs):
        if index and index % DRAFTS_PER_TURN == 0:
            await asyncio.sleep(0)
        with within(f"jobs[{index}]"):
            drafts.append(to_draft(job, _draw_seed))
    if sum(len(draft.after) for draft in drafts) > BULK_AFTER_MAX:
        text = f"The jobs name more than {BULK_AFTER_MAX} others in 'after' together; send fewer."
        raise InvalidRequest(text, param="jobs")
    return drafts


def _draw_seed() -> int:
    return secrets.randbits(DRAWN_SEED_BITS)


def _answer(
    value: msgspec.Struct, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response[bytes]:
    return Response(
        _JSON.encode(value),
        status_code=status,
        headers=dict(headers or {}),
        media_type=MediaType.JSON,
    )
