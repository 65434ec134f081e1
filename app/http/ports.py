"""What the HTTP doors need from the services, and nothing more.

The services satisfy these structurally; tests hand in fakes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, Protocol, TypeVar

from app.domain.draft import IdempotencyKey, JobDraft
from app.domain.events import FollowedEvent
from app.domain.job import JobState
from app.domain.view import DrainView, JobPage, JobView, RestartView, WorkerView
from app.http.accounting.ports import Accounting
from app.http.reports.ports import ReportPorts
from app.http.schedules.ports import Schedules
from app.http.webhooks.ports import WebhookPorts
from shared.ids import JobId

DrainMode = Literal["finish", "checkpoint", "cancel"]


class Follower(Protocol):
    """The events of one job, from the first one after ``created``, or from a later one on."""

    async def take(self, timeout_s: float) -> Sequence[FollowedEvent]:
        """What has happened since the last call, in order; empty on time-out.

        ``Ended`` is last, and comes whatever number was asked for: a follower that starts behind
        the end of a job is handed its ``Ended`` alone, so that its reader is not left waiting.

        Raises:
            JobNotFound: the job was deleted meanwhile.
            StreamInterrupted: the server stops; the job may go on after its next start.
        """
        ...

    def close(self) -> None:
        """Stop following. Synchronous and idempotent, so that a ``finally`` may call it."""
        ...


class Ticket(Protocol):
    """A submitted job and what it says."""

    @property
    def job_id(self) -> JobId: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def model(self) -> str: ...
    @property
    def follower(self) -> Follower: ...
    @property
    def replayed(self) -> bool:
        """Whether the job is an earlier one, found by its idempotency key."""
        ...


TicketT = TypeVar("TicketT", bound=Ticket)
IssuedT_co = TypeVar("IssuedT_co", bound=Ticket, covariant=True)
PresentedT_contra = TypeVar("PresentedT_contra", bound=Ticket, contravariant=True)


class Bulk(Protocol):
    """Jobs that were submitted together."""

    @property
    def ids(self) -> Sequence[JobId]: ...
    @property
    def replayed(self) -> bool: ...


class Submission(Protocol[IssuedT_co]):
    """Admission of new jobs."""

    async def submit(self, draft: JobDraft, /) -> IssuedT_co:
        """The admitted job; with a known idempotency key the one that was admitted with it.

        Raises:
            IdempotencyConflict: the key came with another digest before.
            JobServerError: when the job is refused; nothing of it remains then.
        """
        ...

    async def submit_many(self, drafts: Sequence[JobDraft], key: IdempotencyKey | None, /) -> Bulk:
        """All of these jobs, in order, or none; committed when this returns. With a known key the
        jobs that were admitted with it.

        Raises:
            JobServerError: when one is refused. ``param`` names it, as in ``jobs[17].model``.
        """
        ...

    async def retry(self, job_id: JobId, tenant: str, key: IdempotencyKey | None, /) -> IssuedT_co:
        """A new job that asks for the same and has ``retry_of``; with a known key the one it made.

        Raises:
            JobNotFound: there is no such job of this tenant.
            InvalidRequest: it has not ended, or its request was not kept.
            JobServerError: when the new job is refused.
        """
        ...


class Following(Protocol[PresentedT_contra]):
    """How long a status may stay open."""

    async def await_start(self, ticket: PresentedT_contra, /) -> FollowedEvent | None:
        """The job's first event, or None when ``header_wait_s`` passed with a worker ready."""
        ...

    async def follow(self, job_id: JobId, tenant: str, starting_after: int, /) -> Follower:
        """The job's events with numbers above ``starting_after``; -1 is from the start.

        The first ``Output`` may begin before that number: whoever renders it cuts it.

        Raises:
            JobNotFound: there is no such job of this tenant.
        """
        ...


class Cancellation(Protocol):
    """Ending jobs early."""

    def request_nowait(self, job_id: JobId, /) -> None:
        """The originating connection is gone: cancel. Idempotent; never raises."""
        ...

    async def cancel(self, job_id: JobId, tenant: str, /) -> JobView:
        """The job, asked to stop; final if it ended within ``cancel_wait_s``. Committed when this
        returns; idempotent, and no error for a job that has ended.

        Raises:
            JobNotFound: there is no such job of this tenant.
        """
        ...


class Jobs(Protocol):
    """What is recorded of jobs."""

    async def get(self, job_id: JobId, tenant: str, /) -> JobView:
        """The job with what it has said so far.

        Raises:
            JobNotFound: there is no such job of this tenant.
        """
        ...

    async def list(
        self,
        tenant: str | None,
        states: tuple[JobState, ...],
        tag: tuple[str, str] | None,
        model: str | None,
        after: JobId | None,
        limit: int,
    ) -> JobPage:
        """A page, newest first, from before ``after`` on. No tenant is every tenant; no states is
        every state."""
        ...


class Draining(Protocol):
    """Letting the server's work end, or wait, without stopping the server."""

    @property
    def draining(self) -> bool:
        """Whether admission and dispatch are closed by a drain."""
        ...

    async def start(self, mode: DrainMode, timeout_s: float, /) -> DrainView:
        """The drain, begun; one that runs already is joined."""
        ...

    def status(self) -> DrainView | None:
        """The latest drain; None when there was none."""
        ...

    async def resume(self) -> None:
        """Admit and dispatch again. Idempotent."""
        ...


class Administration(Protocol):
    """The workers, for their operator."""

    def workers(self) -> Sequence[WorkerView]:
        """Every worker whose process may live."""
        ...

    def restarts(self) -> Sequence[RestartView]:
        """What the deaths of each model's workers allow."""
        ...

    def reset(self, model: str, /) -> RestartView:
        """The budget of this model's workers, as new.

        Raises:
            ModelNotFound: there is no such model.
        """
        ...


class ModelCard(Protocol):
    """One model that can be asked for."""

    @property
    def id(self) -> str: ...
    @property
    def created(self) -> int: ...
    @property
    def owned_by(self) -> str: ...
    @property
    def context_length(self) -> int | None: ...


class Readiness(Protocol):
    """Whether a generation would start now, and if not, why."""

    @property
    def ready(self) -> bool: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def retry_after_s(self) -> float | None: ...


class Overview(Protocol):
    """What can be said without waking anything."""

    def models(self) -> Sequence[ModelCard]:
        """The models that can be asked for; the default one first."""
        ...

    def readiness(self) -> Readiness:
        """Whether a generation of the default model would start."""
        ...

    def metrics(self) -> bytes:
        """All metrics in Prometheus' text format."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports(Generic[TicketT]):
    """The services behind the doors. They agree among themselves what a ticket is."""

    submission: Submission[TicketT]
    following: Following[TicketT]
    cancellation: Cancellation
    jobs: Jobs
    draining: Draining
    administration: Administration
    overview: Overview
    reports: ReportPorts
    webhooks: WebhookPorts
    accounting: Accounting
    schedules: Schedules
