"""Schedules in the words of their door."""

from msgspec import UNSET

from app.domain.schedules import ScheduleView, Template
from app.http.schedules.schema import (
    ScheduledBody,
    ScheduledJob,
    ScheduledMessage,
    ScheduleObject,
    ScheduleTrouble,
)


def schedule_object(view: ScheduleView) -> ScheduleObject:
    """One schedule, with the job that it submits."""
    found, trouble = view.schedule, view.trouble
    return ScheduleObject(
        id=found.id,
        name=found.name,
        tenant=found.tenant,
        state=found.state,
        cron=found.timing.cron,
        every_s=found.timing.every_s,
        timezone=found.timing.timezone,
        catch_up=found.timing.catch_up,
        next_due=found.next_due,
        last_due=found.last_due,
        last_job=found.last_job,
        fired=found.fired,
        trouble=None if trouble is None else ScheduleTrouble(trouble.code, trouble.message),
        created_at=found.created_at,
        updated_at=found.updated_at,
        job=UNSET if view.template is None else _job(view.template),
    )


def _job(template: Template) -> ScheduledJob:
    draft = template.draft
    return ScheduledJob(
        kind="chat",
        model=draft.model,
        class_=draft.job_class,
        priority=draft.priority,
        tags=draft.tags,
        deadline_s=draft.deadline_s,
        attempt_timeout_s=draft.attempt_timeout_s,
        max_attempts=draft.max_attempts,
        seed=draft.request.sampling.seed if template.seeded else None,
        body=_body(template),
    )


def _body(template: Template) -> ScheduledBody:
    request = template.draft.request
    messages = [
        ScheduledMessage(role=said.role, content=said.content, name=said.name)
        for said in request.messages
    ]
    return ScheduledBody(
        messages=messages,
        max_tokens=request.max_tokens,
        temperature=request.sampling.temperature,
        top_p=request.sampling.top_p,
        top_k=request.sampling.top_k,
        min_p=request.sampling.min_p,
        stop=list(request.stop),
    )
