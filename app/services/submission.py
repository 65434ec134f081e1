"""Submission: the door's request becomes a job, or is refused before anything was promised."""

import asyncio
from datetime import timedelta
from functools import partial

import msgspec
import structlog

from app.catalogue.entries import ModelEntry
from app.domain.draft import JobDraft
from app.domain.errors import (
    InternalError,
    JobServerError,
    ModelNotFound,
    QueueFull,
    ServerOverloaded,
    ShuttingDown,
    StorageFull,
)
from app.domain.job import JobState, NewJob
from app.services.cancellation import Cancellation
from app.services.clock import Clock
from app.services.endings import Endings
from app.services.fleet import Fleet
from app.services.following import Ticket
from app.services.ledger import Ledger, LiveJob
from app.services.models import Models
from app.services.relay import Relay
from app.services.workers import Workers
from app.settings import Settings
from app.storage.errors import StoreFull
from app.storage.operations import Committed
from app.storage.writer import OutcomeFuture, Writer
from shared.failures import Failure
from shared.ids import IdMint

IDS_SHOWN_MAX = 20
"""Model ids named in the refusal of an unknown one."""

RETRY_AFTER_S = 1.0
_log = structlog.get_logger("submission")


class Submission:
    """Admits jobs. ``close`` ends admission for good."""

    def __init__(
        self,
        models: Models,
        ledger: Ledger,
        fleet: Fleet,
        relay: Relay,
        workers: Workers,
        endings: Endings,
        cancellation: Cancellation,
        writer: Writer,
        clock: Clock,
        mint: IdMint,
        settings: Settings,
    ) -> None:
        self._models = models
        self._ledger = ledger
        self._fleet = fleet
        self._relay = relay
        self._workers = workers
        self._endings = endings
        self._cancellation = cancellation
        self._writer = writer
        self._clock = clock
        self._mint = mint
        self._settings = settings
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
        """Admit a job and record it.

        Raises:
            ShuttingDown: admission has ended.
            ModelNotFound: no such model; names those that would work.
            QueueFull: too many wait already.
            ModelUnavailable: its workers died too often.
            ServerOverloaded: the writer is behind.
            StorageFull: the disk is full.
        """
        if self._closed:
            raise ShuttingDown
        entry = self._find(draft.model)
        size = _request_bytes(draft)
        self._check_room(size)
        self._workers.ensure(entry)
        live = self._live(draft, size)
        try:
            future = self._writer.submit(self._relay.admit(live))
        except JobServerError:
            self._forget(live)
            raise
        self._ledger.add(live)
        ticket = Ticket(live.id, live.new.created_at, draft.model, live.channel.follow())
        future.add_done_callback(partial(self._inserted, live))
        try:
            outcome = await asyncio.shield(future)
        except StoreFull as error:
            raise StorageFull from error
        except asyncio.CancelledError:
            self._cancellation.request_nowait(live.id)
            raise
        if not isinstance(outcome, Committed):
            raise InternalError
        return ticket

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
        self._relay.inserted(live)
        if live.state is JobState.AVAILABLE:
            loop = asyncio.get_running_loop()
            loop.call_later(self._settings.server.start_timeout_s, self._start_overdue, live)

    def _not_stored(self, live: LiveJob, error: BaseException | None) -> None:
        """The insert failed, so there is no job: forget it wherever it already stands."""
        _log.error("job_not_stored", job=live.id, error=str(error))
        self._forget(live)

    def _forget(self, live: LiveJob) -> None:
        self._relay.withdraw(live)
        worker = self._fleet.get(live.generation) if live.generation is not None else None
        if worker is not None:
            worker.held.pop(live.id, None)
            if live.run_command is not None and live.run_command in worker.unseen:
                worker.unseen.remove(live.run_command)
        self._ledger.remove(live)

    def _start_overdue(self, live: LiveJob) -> None:
        """Nobody waits longer than this for a worker that is not there."""
        if live.state is not JobState.AVAILABLE or self._fleet.is_ready(live.new.model):
            return
        if self._relay.withdraw(live):
            waited = self._settings.server.start_timeout_s
            message = f"The model was not loaded within {waited:g} s; try again a little later."
            failure = Failure(code="model_loading", message=message)
            self._endings.end_waiting(live, JobState.FAILED, failure)

    def _find(self, model: str) -> ModelEntry:
        entry = self._models.find(model)
        if entry is not None:
            return entry
        ids = [known.id for known in self._models.list()][:IDS_SHOWN_MAX]
        known = ", ".join(ids) if ids else "none; `mlxq models pull` fetches one"
        raise ModelNotFound(
            f"The model '{model[:200]}' does not exist here. Models that would work: {known}.",
            param="model",
        )

    def _check_room(self, size: int) -> None:
        if self._writer.depth >= self._settings.queue.writer_max:
            raise ServerOverloaded(retry_after_s=RETRY_AFTER_S)
        limit = self._settings.queue.interactive_max
        waiting = self._relay.waiting_count()
        bytes_max = self._settings.queue.waiting_bytes_max
        if waiting >= limit or self._ledger.request_bytes + size > bytes_max:
            self.refused_full += 1
            error = QueueFull()
            error.position = waiting
            raise error

    def _live(self, draft: JobDraft, size: int) -> LiveJob:
        now = self._clock.now()
        deadline_s = draft.deadline_s or self._settings.queue.deadline_s
        new = NewJob(
            id=self._mint.job(),
            kind="chat",
            durability=draft.durability,
            job_class=draft.job_class,
            priority=draft.priority,
            surface=draft.surface,
            tenant=draft.tenant,
            model=draft.model,
            created_at=now,
            scheduled_at=now,
            deadline_at=now + timedelta(seconds=deadline_s),
            seed=draft.request.sampling.seed,
            max_attempts=draft.max_attempts,
            settings=_settings_of(draft),
        )
        return LiveJob(new=new, request=draft.request, request_bytes=size)


def _settings_of(draft: JobDraft) -> bytes:
    """Counts and settings of the request, without a word of its text."""
    request = draft.request
    return msgspec.json.encode(
        {
            "messages": len(request.messages),
            "max_tokens": request.max_tokens,
            "stops": len(request.stop),
            "sampling": msgspec.to_builtins(request.sampling),
        }
    )


def _request_bytes(draft: JobDraft) -> int:
    """About what the request's text takes in memory."""
    return sum(len(message.content) for message in draft.request.messages)
