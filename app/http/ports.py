"""What the HTTP doors need from the services, and nothing more.

The services satisfy these structurally; tests hand in fakes. One ``Ports`` is injected into every
handler: Litestar resolves several dependencies of a handler in a task group, a single one directly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

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


class Submission(Protocol):
    """Admission of new jobs."""

    async def submit(self, draft: JobDraft) -> Ticket:
        """The admitted job.

        Raises:
            JobServerError: when the job is refused; nothing of it remains then.
        """
        ...


class Following(Protocol):
    """How long a status may stay open."""

    async def await_start(self, ticket: Ticket) -> FollowedEvent | None:
        """The job's first event, or None when ``header_wait_s`` passed with a worker ready."""
        ...


class Cancellation(Protocol):
    """Ending jobs early."""

    def request_nowait(self, job_id: JobId) -> None:
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
class Ports:
    """The services behind the doors."""

    submission: Submission
    following: Following
    cancellation: Cancellation
    overview: Overview
