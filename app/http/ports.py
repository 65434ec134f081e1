"""What the HTTP doors need from the services, and nothing more.

The services satisfy these structurally; tests hand in fakes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from app.domain.draft import JobDraft
from app.domain.events import FollowedEvent
from shared.ids import JobId


class Follower(Protocol):
    """The events of one job, from the first one after ``created``."""

    async def take(self, timeout_s: float) -> Sequence[FollowedEvent]:
        """What has happened since the last call, in order; empty on time-out. ``Ended`` is last."""
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


TicketT = TypeVar("TicketT", bound=Ticket)
IssuedT_co = TypeVar("IssuedT_co", bound=Ticket, covariant=True)
PresentedT_contra = TypeVar("PresentedT_contra", bound=Ticket, contravariant=True)


class Submission(Protocol[IssuedT_co]):
    """Admission of new jobs."""

    async def submit(self, draft: JobDraft, /) -> IssuedT_co:
        """The admitted job.

        Raises:
            JobServerError: when the job is refused; nothing of it remains then.
        """
        ...


class Following(Protocol[PresentedT_contra]):
    """How long a status may stay open."""

    async def await_start(self, ticket: PresentedT_contra, /) -> FollowedEvent | None:
        """The job's first event, or None when ``header_wait_s`` passed with a worker ready."""
        ...


class Cancellation(Protocol):
    """Ending jobs early."""

    def request_nowait(self, job_id: JobId, /) -> None:
        """The originating connection is gone: cancel. Idempotent; never raises."""
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
    overview: Overview
