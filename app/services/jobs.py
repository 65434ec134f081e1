"""Jobs as people see them: read from the store, with what only this process knows."""

import msgspec

from app.domain.errors import JobNotFound
from app.domain.job import Durability, JobState
from app.domain.output import JobOutput
from app.domain.view import JobPage, JobView
from app.services.ledger import Ledger
from app.services.recall import Recall
from app.services.relay import Relay
from app.storage.database import Database
from app.storage.reading import load_job, load_jobs
from app.storage.rows import JobRow
from shared.ids import JobId
from shared.requests import JobRequest


class Jobs:
    """Looks jobs up. What is not committed is not told."""

    def __init__(self, database: Database, ledger: Ledger, relay: Relay, recall: Recall) -> None:
        self._readers = database.readers
        self._ledger = ledger
        self._relay = relay
        self._recall = recall

    async def get(self, job_id: JobId, tenant: str) -> JobView:
        """This job with its output so far.

        Raises:
            JobNotFound: there is no such job of this tenant.
        """
        row = await load_job(self._readers, job_id, tenant)
        if row is None:
            raise JobNotFound
        output = JobOutput()
        if row.new.durability is not Durability.ATTACHED:
            output = await self._recall.output(job_id)
        return msgspec.structs.replace(self._view(row), output=output.view())

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

    def _view(self, row: JobRow) -> JobView:
        live = self._ledger.get(row.new.id)
        new = row.new
        return JobView(
            id=new.id,
            kind=new.kind,
            surface=new.surface,
            model=new.model,
            tenant=new.tenant,
            durability=new.durability,
            job_class=new.job_class,
            priority=new.priority,
            state=row.state,
            attempt=row.attempt,
            failures=row.failures,
            max_attempts=new.max_attempts,
            losses=row.losses,
            preemptions=row.preemptions,
            created_at=new.created_at,
            scheduled_at=new.scheduled_at,
            deadline_at=new.deadline_at,
            attempt_timeout_s=new.attempt_timeout_s,
            started_at=row.started_at,
            finalized_at=row.finalized_at,
            stop_reason=row.stop_reason,
            retry_of=row.retry_of,
            finish_reason=row.finish_reason,
            failure=row.failure,
            usage=row.usage,
            events=row.events,
            tags=row.tags,
            seed=new.seed,
            position=self._relay.position(live) if live is not None else None,
        )
