"""Submission: the door's request becomes a job, or is refused before anything was promised."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import msgspec
import structlog

from app.domain.draft import IdempotencyKey, JobDraft
from app.domain.errors import (
    Draining,
    InternalError,
    InvalidRequest,
    JobServerError,
    QueueFull,
    ServerOverloaded,
    ShuttingDown,
    StorageFull,
)
from app.domain.job import Durability, JobClass, JobState
from app.services.cancellation import Cancellation
from app.services.clock import Clock
from app.services.deadlines import Deadlines
from app.services.dependents import Dependents, Found, not_there
from app.services.drafting import live_job, new_idempotency, numbered_idempotency, request_bytes
from app.services.endings import Endings
from app.services.fleet import Fleet
from app.services.following import Following, Ticket
from app.services.jobs import Jobs
from app.services.ledger import Ledger, LiveJob
from app.services.models import Models
from app.services.queues import Queues
from app.services.relay import Relay
from app.services.replays import Replays
from app.services.returns import Returns
from app.services.starts import Starts
from app.settings import Settings
from app.storage.dependencies import released_at_once
from app.storage.errors import StoreFull
from app.storage.jobs import insert_jobs
from app.storage.operations import Committed, Void
from app.storage.writer import OutcomeFuture, Writer
from shared.failures import Failure
from shared.ids import IdMint, JobId

RETRY_AFTER_S = 1.0
_log = structlog.get_logger("submission")


class Bulk(NamedTuple):
    """Jobs that were submitted together. ``replayed``: by an earlier request with the same key."""

    ids: Sequence[JobId]
    replayed: bool


class Submission:
    """Admits jobs. ``close`` ends admission for good."""

    def __init__(
        self,
        models: Models,
        ledger: Ledger,
        fleet: Fleet,
        queues: Queues,
        relay: Relay,
        starts: Starts,
        returns: Returns,
        endings: Endings,
        cancellation: Cancellation,
        deadlines: Deadlines,
        dependents: Dependents,
        jobs: Jobs,
        following: Following,
        replays: Replays,
        writer: Writer,
        clock: Clock,
        mint: IdMint,
        settings: Settings,
    ) -> None:
        self._models = models
        self._ledger = ledger
        self._fleet = fleet
        self._queues = queues
        self._relay = relay
        self._starts = starts
        self._returns = returns
        self._endings = endings
        self._cancellation = cancellation
        self._deadlines = deadlines
        self._dependents = dependents
        self._jobs = jobs
        self._following = following
        self._replays = replays
        self._writer = writer
        self._clock = clock
        self._mint = mint
        self._settings = settings
        self._limits = {
            JobClass.INTERACTIVE: settings.queue.interactive_max,
            JobClass.BACKGROUND: settings.queue.background_max,
            JobClass.BATCH: settings.queue.batch_max,
        }
        self._closed = False
        self.refused_full = 0

    def close(self) -> None:
        """Refuse everything from now on."""
        self._closed = True

    @property
    def closed(self) -> bool:
        """Whether admission has ended."""
        return self._closed

    async def submit(self, draft: JobDraft) -> Ticket:
        """Admit a job and record it; with an idempotency key that is known, find it again.

        Raises:
            ShuttingDown: admission has ended.
            Draining: attached work is refused for now.
            ModelNotFound: no such model; names those that would work.
            QueueFull: too many wait already.
            ModelUnavailable: its workers died too often.
            ServerOverloaded: the writer is behind.
            StorageFull: the disk is full.
            IdempotencyConflict: the key belongs to another request.
        """
        if draft.idempotency is not None:
            known = await self._replays.find(draft.tenant, draft.idempotency)
            if known is not None:
                return known
        found = await self._dependents.look_up([draft]) if draft.after else {}
        self._check(draft)
        self._dependents.check(draft, found, Counter())
        live = self._live(draft)
        future = self._insert(live, draft, found)
        follower = self._following.accompany(live)
        ticket = Ticket(live.id, live.new.created_at, draft.model, follower)
        try:
            outcome = await asyncio.shield(future)
        except StoreFull as error:
            raise StorageFull from error
        except asyncio.CancelledError:
            if draft.durability is not Durability.DURABLE:
                self._cancellation.request_nowait(live.id)
            raise
        if isinstance(outcome, Committed):
            return ticket
        if draft.idempotency is not None:  # somebody was quicker with the same key
            known = await self._replays.find(draft.tenant, draft.idempotency)
            if known is not None:
                return known
        raise _not_recorded(outcome)

    async def submit_many(
        self, drafts: Sequence[JobDraft], key: IdempotencyKey | None = None
    ) -> Bulk:
        """Admit jobs together: all are committed when this returns, or none was taken. With a key
        that is known they are found again; it belongs to the first job's tenant.

        Raises:
            JobServerError: the first reason found; see ``submit``.
        """
        tenant = drafts[0].tenant
        if key is not None and (known := await self._replays.find_many(tenant, key)):
            return Bulk(known, replayed=True)
        waits = any(draft.after for draft in drafts)
        found = await self._dependents.look_up(drafts) if waits else {}
        also = Counter[JobId]()
        for n, draft in enumerate(drafts):
            try:
                self._check(draft, also=len(drafts) - 1)
                self._dependents.check(draft, found, also)
            except JobServerError as error:
                error.param = f"jobs[{n}].{error.param}" if error.param else f"jobs[{n}]"
                raise
        now, deadline_s = self._clock.now(), self._settings.queue.deadline_s
        ids = self._mint.jobs(len(drafts))
        lives = [
            live_job(draft, job, now, deadline_s) for draft, job in zip(drafts, ids, strict=True)
        ]
        keys = numbered_idempotency(key, tenant, ids, now) if key is not None else ()
        future = self._writer.submit(insert_jobs([live.new for live in lives], keys))
        for live in lives:
            self._take(live, found)
        future.add_done_callback(partial(self._all_inserted, lives))
        try:
            outcome = await asyncio.shield(future)
        except StoreFull as error:
            raise StorageFull from error
        if isinstance(outcome, Committed):
            return Bulk(ids, replayed=False)
        if key is not None and (known := await self._replays.find_many(tenant, key)):
            return Bulk(known, replayed=True)
        raise _not_recorded(outcome)

    def _all_inserted(self, lives: Sequence[LiveJob], future: OutcomeFuture) -> None:
        for live in lives:
            self._inserted(live, future)

    async def retry(self, job_id: JobId, tenant: str, key: IdempotencyKey | None = None) -> Ticket:
        """A new job like this one, which has ended; with a key that is known, the one it made.

        Raises:
            JobNotFound: there is no such job of this tenant.
            InvalidRequest: it has not ended, or its request was not kept.
        """
        view = await self._jobs.get(job_id, tenant)
        if not view.state.final:
            raise InvalidRequest(f"The job is {view.state}; only an ended job can be retried.")
        request = await self._jobs.request(job_id)
        if request is None:
            raise InvalidRequest("The job's request was not kept, so it cannot be retried.")
        return await self.submit(
            JobDraft(
                surface=view.surface,
                model=view.model,
                request=request,
                durability=Durability.DURABLE,
                job_class=view.job_class,
                priority=view.priority,
                tenant=tenant,
                max_attempts=view.max_attempts,
                attempt_timeout_s=view.attempt_timeout_s,
                tags=view.tags,
                retry_of=job_id,
                idempotency=key,
            )
        )

    def _check(self, draft: JobDraft, also: int = 0) -> None:
        """Refuse what cannot be admitted now; ``also`` more of its kind come with it."""
        if self._closed:
            raise ShuttingDown
        self._check_times(draft)
        foreground = draft.durability is not Durability.DURABLE
        if foreground and self._relay.paused:
            raise Draining
        self._models.require(draft.model)
        self._check_room(draft, also)
        if foreground:
            self._starts.check(draft.model)

    def _check_times(self, draft: JobDraft) -> None:
        if draft.scheduled_at is None or draft.deadline_s is None:
            return
        if draft.scheduled_at >= self._clock.now() + timedelta(seconds=draft.deadline_s):
            raise InvalidRequest(
                "'scheduled_at' is not before the job's deadline, so it could never run. "
                "Give an earlier time, or a larger 'deadline_s'.",
                param="scheduled_at",
            )

    def _insert(self, live: LiveJob, draft: JobDraft, found: Found) -> OutcomeFuture:
        key = new_idempotency(draft, live, self._clock.now())
        try:
            future = self._writer.submit(self._relay.admit(live, key, draft.due))
        except JobServerError:
            self._forget(live)
            raise
        self._take(live, found)
        future.add_done_callback(partial(self._inserted, live))
        return future

    def _take(self, live: LiveJob, found: Found) -> None:
        self._ledger.add(live)
        if live.new.after:
            self._dependents.take(live, found)

    def _inserted(self, live: LiveJob, future: OutcomeFuture) -> None:
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None or not isinstance(future.result(), Committed):
            self._not_stored(live, error)
            return
        _log.info(
            "job_submitted",
            job=live.id,
            model=live.new.model,
            durability=live.new.durability,
            job_class=live.new.job_class,
        )
        live.inserted = True
        live.new = msgspec.structs.replace(live.new, request=None)  # on disk, and decoded here
        self._deadlines.watch(live)
        self._relay.inserted(live)
        loop = asyncio.get_running_loop()
        if live.new.after:
            self._ledger.drop_request(live)
        if live.state is JobState.SCHEDULED and not released_at_once(live.new):
            wait_s = (live.new.scheduled_at - self._clock.now()).total_seconds()
            self._returns.wait_until_due(live, wait_s)
        elif live.state is JobState.AVAILABLE and live.new.durability is not Durability.DURABLE:
            loop.call_later(self._settings.server.start_timeout_s, self._start_overdue, live)
        if live.state in (JobState.SCHEDULED, JobState.AVAILABLE):
            self._ledger.forget_request(live)
        self._dependents.begin(live)

    def _not_stored(self, live: LiveJob, error: BaseException | None) -> None:
        """The insert failed, so there is no job: forget it wherever it already stands."""
        if error is not None:
            _log.error("job_not_stored", job=live.id, error=str(error))
        self._forget(live)

    def _forget(self, live: LiveJob) -> None:
        self._relay.withdraw(live)
        worker = self._fleet.get(live.generation) if live.generation is not None else None
        if worker is not None:
            worker.let_go(live)
        self._queues.settle(live)
        self._dependents.forget(live)
        self._ledger.remove(live)
        self._relay.pump(live.new.model)  # others may have its row

    def _start_overdue(self, live: LiveJob) -> None:
        """Nobody waits longer than this for a worker that is not there."""
        if live.state is not JobState.AVAILABLE or self._fleet.is_ready(live.new.model):
            return
        if self._relay.withdraw(live):
            waited = self._settings.server.start_timeout_s
            message = f"The model was not loaded within {waited:g} s; try again a little later."
            failure = Failure(code="model_loading", message=message)
            self._endings.end_waiting(live, JobState.FAILED, failure)

    def _check_room(self, draft: JobDraft, also: int) -> None:
        if self._writer.depth + also >= self._settings.queue.writer_max:
            raise ServerOverloaded(retry_after_s=RETRY_AFTER_S)
        waiting = self._queues.of_class(draft.job_class)
        waiting += self._dependents.of_class(draft.job_class) if draft.after else 0
        memory = self._ledger.request_bytes + request_bytes(draft)
        full = memory > self._settings.queue.waiting_bytes_max
        if full or waiting + also >= self._limits[draft.job_class]:
            raise self._full(QueueFull.__doc__, waiting)
        own, own_max = self._queues.of_tenant(draft.tenant), self._settings.queue.tenant_max
        if own_max and own + also >= own_max:
            raise self._full("Too many of this tenant's requests wait already.", own)

    def _full(self, message: str | None, position: int) -> QueueFull:
        self.refused_full += 1
        error = QueueFull(message)
        error.position = position
        return error

    def _live(self, draft: JobDraft) -> LiveJob:
        deadline_s = self._settings.queue.deadline_s
        return live_job(draft, self._mint.job(), self._clock.now(), deadline_s)


class AlreadyFired(Exception):
    """The schedule has fired this due, or has changed or gone meanwhile: there is no new job."""


def _not_recorded(outcome: Void) -> Exception:
    """Why nothing was recorded, told to whoever asked for it."""
    if outcome.statement == "dependency.insert":  # deleted between the look and the commit
        return not_there(outcome.subject, "after")
    if outcome.statement in ("firing.insert", "schedule.fire"):
        return AlreadyFired(outcome.subject)
    return InternalError()
