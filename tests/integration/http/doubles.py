"""Services that answer as a test tells them to, and record what they were asked.

Real implementations of the ports, over an in-memory list of events per job.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

import msgspec

from app.domain.draft import IdempotencyKey, JobDraft
from app.domain.errors import IdempotencyConflict, InvalidRequest, JobServerError
from app.domain.events import Ended, FollowedEvent, Output, Started
from app.domain.job import Ending, JobState, Usage
from app.domain.view import JobView
from app.http.ports import Ports
from app.http.reports.ports import ReportPorts
from app.http.webhooks.ports import WebhookPorts
from shared.failures import Failure
from shared.ids import JobId
from shared.messages import Finish, Part, Text
from tests.integration.http.job_doubles import (
    CREATED_AT,
    FakeAdministration,
    FakeDraining,
    FakeJobs,
    job_id,
    view_of,
)

MODEL = "tiny/model"


@dataclass(frozen=True)
class FakeBulk:
    """Jobs that were submitted together."""

    ids: list[JobId]
    replayed: bool = False


@dataclass(eq=False)
class FakeFollower:
    """Hands out what was pushed; a time-out only happens when a test says so."""

    pushed: deque[FollowedEvent] = field(default_factory=deque[FollowedEvent])
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    silences: int = 0
    error: Exception | None = None
    waits: list[float] = field(default_factory=list[float])
    taking: asyncio.Event = field(default_factory=asyncio.Event)
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def push(self, *events: FollowedEvent) -> None:
        self.pushed.extend(events)
        self._more.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self._more.set()

    def stay_silent(self) -> None:
        """The next wait times out."""
        self.silences += 1
        self._more.set()

    async def take(self, timeout_s: float) -> Sequence[FollowedEvent]:
        self.taking.set()
        self.waits.append(timeout_s)
        while not (self.pushed or self.silences or self.error):
            self._more.clear()
            await self._more.wait()
        if self.error:
            raise self.error
        if not self.pushed:
            self.silences -= 1
        events = list(self.pushed)
        self.pushed.clear()
        return events

    def close(self) -> None:
        self.closed.set()


@dataclass(eq=False)
class FakeTicket:
    job_id: JobId
    model: str
    follower: FakeFollower = field(default_factory=FakeFollower)
    created_at: datetime = CREATED_AT
    start_waited: asyncio.Event = field(default_factory=asyncio.Event)
    start: "asyncio.Future[FollowedEvent | None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    cancels: int = 0
    replayed: bool = False


class Later:
    """Somebody who is known only when something is asked of them."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find

    def __getattr__(self, name: str) -> Any:
        return getattr(self._find(), name)


@dataclass(frozen=True)
class Card:
    id: str
    created: int = 1_700_000_000
    owned_by: str = "mlxq"
    context_length: int | None = 2048


@dataclass(frozen=True)
class State:
    ready: bool = True
    reason: str | None = None
    retry_after_s: float | None = None


def open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


@dataclass(eq=False)
class FakeServices(FakeJobs, FakeDraining, FakeAdministration):
    """All ports at once. ``script`` says what happens to a job as it is submitted."""

    script: Callable[[FakeTicket], None] = lambda _ticket: None
    refusal: Exception | None = None
    state: State = State()
    cards: tuple[Card, ...] = (Card(MODEL), Card("other"))
    drafts: list[JobDraft] = field(default_factory=list[JobDraft])
    bulks: dict[IdempotencyKey, list[JobId]] = field(
        default_factory=dict[IdempotencyKey, list[JobId]]
    )
    retried_with: IdempotencyKey | None = None
    tickets: "asyncio.Queue[FakeTicket]" = field(default_factory=asyncio.Queue)
    admission: asyncio.Event = field(default_factory=open_gate)
    submitting: asyncio.Event = field(default_factory=asyncio.Event)
    by_id: dict[JobId, FakeTicket] = field(default_factory=dict[JobId, FakeTicket])
    keys: dict[tuple[str, str, str, str], tuple[str, JobId]] = field(
        default_factory=dict[tuple[str, str, str, str], tuple[str, JobId]]
    )
    followers: "asyncio.Queue[FakeFollower]" = field(default_factory=asyncio.Queue)
    followed_from: list[int] = field(default_factory=list[int])
    reports: Any = None
    accounting: Any = None
    schedules: Any = None
    told: list[FollowedEvent] = field(default_factory=list[FollowedEvent])
    """What every follower of a job is handed as it begins, whatever number it asks for."""

    def ports(self) -> Ports[FakeTicket]:
        return Ports(
            submission=self,
            following=self,
            cancellation=self,
            jobs=self,
            draining=self,
            administration=self,
            overview=self,
            accounting=cast("Any", Later(lambda: self.accounting)),
            schedules=cast("Any", Later(lambda: self.schedules)),
            webhooks=WebhookPorts(
                feed=cast("Any", Later(lambda: self.reports.feed)),
                endpoints=cast("Any", Later(lambda: self.reports.endpoints)),
                deliveries=cast("Any", Later(lambda: self.reports.deliveries)),
            ),
            reports=ReportPorts(
                feed=cast("Any", Later(lambda: self.reports.feed)),
                consumers=cast("Any", Later(lambda: self.reports.consumers)),
            ),
        )

    async def submit(self, draft: JobDraft) -> FakeTicket:
        self.drafts.append(draft)
        self.submitting.set()
        await self.admission.wait()
        if self.refusal:
            raise self.refusal
        known = self._known(draft)
        return (
            self._admit(draft) if known is None else FakeTicket(known, draft.model, replayed=True)
        )

    async def submit_many(self, drafts: Sequence[JobDraft], key: IdempotencyKey | None) -> FakeBulk:
        self.drafts.extend(drafts)
        if self.refusal:
            raise self.refusal
        if key is not None and key in self.bulks:
            return FakeBulk(self.bulks[key], replayed=True)
        ids = [self._admit(draft).job_id for draft in drafts]
        if key is not None:
            self.bulks[key] = ids
        return FakeBulk(ids)

    async def retry(self, job: JobId, tenant: str, key: IdempotencyKey | None) -> FakeTicket:
        self.retried_with = key
        view = await self.get(job, tenant)
        if not view.state.final:
            raise InvalidRequest("The job has not ended.")
        ticket = self._ticket(view.model)
        self.add(msgspec.structs.replace(view, id=ticket.job_id, retry_of=job))
        return ticket

    def _admit(self, draft: JobDraft) -> FakeTicket:
        ticket = self._ticket(draft.model)
        self.add(msgspec.structs.replace(view_of(draft), id=ticket.job_id))
        if draft.idempotency is not None:
            self.keys[_scope(draft)] = (draft.idempotency.digest, ticket.job_id)
        self.script(ticket)
        return ticket

    def _ticket(self, model: str) -> FakeTicket:
        job = job_id(len({*self.by_id, *self.views}) + 1)
        ticket = self.by_id[job] = FakeTicket(job, model)
        self.tickets.put_nowait(ticket)
        return ticket

    def _known(self, draft: JobDraft) -> JobId | None:
        digest, job = self.keys.get(_scope(draft), ("", None))
        if job is not None and draft.idempotency and draft.idempotency.digest != digest:
            raise IdempotencyConflict
        return job

    async def follow(self, job: JobId, tenant: str, starting_after: int) -> FakeFollower:
        self.followed_from.append(starting_after)
        await self.get(job, tenant)
        follower = FakeFollower()
        follower.push(*self.told)
        self.followers.put_nowait(follower)
        return follower

    async def cancel(self, job: JobId, tenant: str) -> JobView:
        view = await self.get(job, tenant)
        if not view.state.final:
            self.end(job, JobState.CANCELLED)
        return await self.get(job, tenant)

    async def await_start(self, ticket: FakeTicket) -> FollowedEvent | None:
        ticket.start_waited.set()
        return await ticket.start

    def request_nowait(self, job_id: JobId) -> None:
        self.by_id[job_id].cancels += 1
        self.by_id[job_id].cancelled.set()

    def models(self) -> Sequence[Card]:
        return self.cards

    def readiness(self) -> State:
        return self.state

    def metrics(self) -> bytes:
        return b"# TYPE mlxq_up gauge\nmlxq_up 1\n"


def _scope(draft: JobDraft) -> tuple[str, str, str, str]:
    key = draft.idempotency
    return (draft.tenant, key.method, key.path, key.key) if key else ("", "", "", "")


def started() -> Started:
    return Started(1, 7, 3)


def said(*texts: str, seq: int = 2) -> Output:
    return Output(seq, 0, tuple(Text(text) for text in texts), len(texts))


def parts(*given: Part) -> Output:
    return Output(2, 0, given, 1)


def ended(
    state: JobState = JobState.COMPLETED,
    *,
    failure: Failure | None = None,
    finish_reason: str | None = "stop",
) -> Ended:
    usage = Usage(prompt_tokens=7, cached_tokens=3, completion_tokens=2, reasoning_tokens=0)
    ending = Ending(
        job=JobId("job_0"),
        attempt=1,
        state=state,
        finish_reason=finish_reason,
        failure=failure,
        usage=usage,
        finalized_at=CREATED_AT,
    )
    return Ended(9, ending)


def failed(code: str, message: str = "It broke.", param: str | None = None) -> Ended:
    return ended(JobState.FAILED, failure=Failure(code, message, param=param), finish_reason=None)


def answering(*texts: str, reason: str = "stop") -> Callable[[FakeTicket], None]:
    """A job that starts, says this and ends."""

    def play(ticket: FakeTicket) -> None:
        ticket.start.set_result(started())
        ticket.follower.push(*(said(text) for text in texts))
        finish = Finish("length" if reason == "length" else "stop")
        ticket.follower.push(parts(finish), ended(finish_reason=reason))

    return play


def starting(ticket: FakeTicket) -> None:
    """A job that starts and then waits for the test."""
    ticket.start.set_result(started())


def refused_with(error: JobServerError) -> FakeServices:
    return FakeServices(refusal=error)
