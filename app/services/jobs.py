"""Jobs as people see them: read from the store, with what only this process knows."""

from typing import Any, Final

import msgspec

from app.domain.errors import JobNotFound
from app.domain.job import Durability, JobState, NewJob, Usage
from app.domain.output import JobOutput
from app.domain.view import JobPage, JobView
from app.services.ledger import Ledger, LiveJob
from app.services.queues import Queues
from app.services.recall import Recall
from app.storage.database import Database
from app.storage.reading import load_job, load_jobs
from app.storage.rows import JobRow
from shared.ids import JobId
from shared.requests import JobRequest


class Jobs:
    """Looks jobs up. What is not committed is not told."""

    def __init__(self, database: Database, ledger: Ledger, queues: Queues, recall: Recall) -> None:
        self._readers = database.readers
        self._ledger = ledger
        self._queues = queues
        self._recall = recall

    async def get(self, job_id: JobId, tenant: str) -> JobView:
        """This job with its output so far.

        Raises:
            JobNotFound: there is no such job of this tenant.
        """
        live = self._ledger.get(job_id)
        if live is not None and live.new.tenant == tenant and _is_fresh(live):
            return self._fresh(live)
        row = await load_job(self._readers, job_id, tenant)
        if row is None:
            raise JobNotFound
        output = JobOutput()
        if row.new.durability is not Durability.ATTACHED:
            output = await self._recall.output(job_id)
        view = msgspec.structs.replace(self._view(row), output=output.view())
        if row.state.final:
            return view
        # The row counts them when the job ends; until then they are what the journal holds.
        said = max(row.usage.completion_tokens, output.completion_tokens)
        usage = msgspec.structs.replace(row.usage, completion_tokens=said)
        return msgspec.structs.replace(view, usage=usage)

    async def request(self, job_id: JobId) -> JobRequest | None:
        """The job's request, if it is kept."""
        return await self._recall.request(job_id)

    async def list(
        self,
        tenant: str | None,
        states: tuple[JobState, ...] = (),
        tag: tuple[str, str] | None = None,
        model: str | None = None,
        after: JobId | None = None,
        limit: int = 20,
    ) -> JobPage:
        """A page of jobs (of one tenant, or of all), newest first, from behind ``after`` on."""
        rows = await load_jobs(
            self._readers,
            tenant,
            after=after,
            states=states,
            tag=tag,
            model=model,
            limit=limit + 1,
        )
        return JobPage(jobs=tuple(map(self._view, rows[:limit])), has_more=len(rows) > limit)

    def _fresh(self, live: LiveJob) -> JobView:
        """A job to which nothing has happened yet but, perhaps, its first claim: what the store
        holds of it is known here."""
        new = live.new
        running = live.state is JobState.RUNNING and live.claimed
        state = JobState.AVAILABLE if live.state is JobState.RUNNING else live.state
        return JobView(
            **_submitted(new),
            state=JobState.RUNNING if running else state,
            attempt=1 if running else 0,
            failures=0,
            losses=0,
            preemptions=0,
            started_at=None,
            finalized_at=None,
            stop_reason=None,
            finish_reason=None,
            failure=None,
            usage=Usage(),
            events=live.next_seq,
            tags=new.tags,
            position=self._queues.position(live),
        )

    def _view(self, row: JobRow) -> JobView:
        live = self._ledger.get(row.new.id)
        return JobView(
            **_submitted(row.new),
            state=row.state,
            attempt=row.attempt,
            failures=row.failures,
            losses=row.losses,
            preemptions=row.preemptions,
            started_at=row.started_at,
            finalized_at=row.finalized_at,
            stop_reason=row.stop_reason,
            after=row.after,
            finish_reason=row.finish_reason,
            failure=row.failure,
            usage=row.usage,
            events=row.events,
            tags=row.tags,
            position=self._queues.position(live) if live is not None else None,
        )


def _is_fresh(live: LiveJob) -> bool:
    return (
        live.attempt <= 1
        and live.inserted
        and not live.new.after
        and live.started_at is None
        and not live.state.final
        and live.state is not JobState.RETRYABLE
        and live.stop is None
        and not (live.attempt == 1 and live.state is JobState.AVAILABLE)
    )


def _submitted(new: NewJob) -> dict[str, Any]:
    """What is fixed since the submission."""
    return {name: getattr(new, name) for name in _SUBMITTED}


_SUBMITTED: Final = (
    "id",
    "kind",
    "surface",
    "model",
    "tenant",
    "durability",
    "job_class",
    "priority",
    "max_attempts",
    "created_at",
    "scheduled_at",
    "deadline_at",
    "attempt_timeout_s",
    "retry_of",
    "on_failure",
    "schedule",
    "seed",
)
