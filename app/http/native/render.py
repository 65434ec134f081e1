"""Jobs in the words of the native door."""

from msgspec import UNSET

from app.domain.job import Usage
from app.domain.view import ChoiceView, JobPage, JobView
from app.http.native.schema import (
    JobChoice,
    JobFailure,
    JobItem,
    JobList,
    JobObject,
    JobPredecessor,
    JobUsage,
    QueuePlace,
)
from shared.failures import Failure


def job_object(job: JobView, *, output: bool = True) -> JobObject:
    """One job, with or without what it has said."""
    return JobObject(
        id=job.id,
        kind=job.kind,
        surface=job.surface,
        model=job.model,
        tenant=job.tenant,
        durability=job.durability,
        class_=job.job_class,
        priority=job.priority,
        state=job.state,
        attempt=job.attempt,
        failures=job.failures,
        max_attempts=job.max_attempts,
        losses=job.losses,
        preemptions=job.preemptions,
        created_at=job.created_at,
        scheduled_at=job.scheduled_at,
        deadline_at=job.deadline_at,
        attempt_timeout_s=job.attempt_timeout_s,
        started_at=job.started_at,
        finalized_at=job.finalized_at,
        stop_reason=job.stop_reason,
        retry_of=job.retry_of,
        after=[JobPredecessor(before, outcome) for before, outcome in job.after.items()],
        on_failure=job.on_failure if job.after else None,
        schedule=job.schedule,
        finish_reason=job.finish_reason,
        failure=failure_object(job.failure),
        usage=usage_object(job.usage),
        events=job.events,
        tags=job.tags,
        seed=job.seed,
        queue=None if job.position is None else QueuePlace(job.position),
        output=[_choice(choice) for choice in job.output] if output else UNSET,
    )


def job_list(page: JobPage) -> JobList:
    """A page of jobs."""
    data = [job_object(job, output=False) for job in page.jobs]
    return JobList(
        data=data,
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
        has_more=page.has_more,
    )


def usage_object(usage: Usage) -> JobUsage:
    """Counted tokens, and their sum."""
    return JobUsage(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
    )


def failure_object(failure: Failure | None) -> JobFailure | None:
    """Why the job failed, if it did."""
    if failure is None:
        return None
    return JobFailure(
        code=failure.code,
        message=failure.message,
        retryable=failure.retryable,
        param=failure.param,
    )


def _choice(choice: ChoiceView) -> JobChoice:
    items = [
        JobItem(
            ordinal=item.ordinal,
            kind=item.kind,
            name=item.name,
            text=item.text,
            closed=item.closed,
        )
        for item in choice.items
    ]
    return JobChoice(choice=choice.choice, items=items, finish_reason=choice.finish_reason)
