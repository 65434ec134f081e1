"""Jobs that are only recorded, and a drain that goes as far as a test says."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from app.domain.draft import JobDraft
from app.domain.errors import JobNotFound, ModelNotFound
from app.domain.job import Durability, JobClass, JobState, StopReason, Usage
from app.domain.view import (
    ChoiceView,
    DrainView,
    JobPage,
    JobView,
    OutputItem,
    RestartView,
    WorkerView,
)
from app.http.ports import DrainMode
from shared.ids import JobId

CREATED_AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def job_id(number: int) -> JobId:
    return JobId(f"job_{number:032x}")


def job_view(number: int = 1, **changes: Any) -> JobView:
    """A job that waits, third in its queue, with changes."""
    view = JobView(
        id=job_id(number),
        kind="chat",
        surface="native",
        model="tiny/model",
        tenant="default",
        durability=Durability.DURABLE,
        job_class=JobClass.BACKGROUND,
        priority=0,
        state=JobState.AVAILABLE,
        attempt=0,
        failures=0,
        max_attempts=1,
        losses=0,
        preemptions=0,
        created_at=CREATED_AT,
        scheduled_at=CREATED_AT,
        deadline_at=CREATED_AT + timedelta(days=7),
        attempt_timeout_s=None,
        started_at=None,
        finalized_at=None,
        stop_reason=None,
        retry_of=None,
        finish_reason=None,
        failure=None,
        usage=Usage(),
        events=1,
        tags={},
        seed=7,
        position=2,
    )
    return msgspec.structs.replace(view, **changes)


def completed(number: int = 1, text: str = "Paris.", **changes: Any) -> JobView:
    """A job that has said this and ended."""
    item = OutputItem(ordinal=0, kind="message", name=None, text=text, closed=True)
    ended: dict[str, Any] = {
        "state": JobState.COMPLETED,
        "attempt": 1,
        "started_at": CREATED_AT + timedelta(seconds=1),
        "finalized_at": CREATED_AT + timedelta(seconds=2),
        "finish_reason": "stop",
        "usage": Usage(prompt_tokens=7, cached_tokens=3, completion_tokens=2),
        "events": 6,
        "position": None,
        "output": (ChoiceView(choice=0, items=(item,), finish_reason="stop"),),
    }
    return job_view(number, **{**ended, **changes})


def view_of(draft: JobDraft) -> JobView:
    """The job that a draft becomes."""
    return job_view(
        surface=draft.surface,
        model=draft.model,
        tenant=draft.tenant,
        durability=draft.durability,
        job_class=draft.job_class,
        priority=draft.priority,
        max_attempts=draft.max_attempts,
        attempt_timeout_s=draft.attempt_timeout_s,
        scheduled_at=draft.scheduled_at or CREATED_AT,
        retry_of=draft.retry_of,
        tags=draft.tags,
        seed=draft.request.sampling.seed,
    )


@dataclass(eq=False, kw_only=True)
class FakeJobs:
    """The record of all jobs."""

    views: dict[JobId, JobView] = field(default_factory=dict[JobId, JobView])

    def add(self, *views: JobView) -> None:
        self.views.update({view.id: view for view in views})

    def end(self, job: JobId, state: JobState) -> None:
        self.views[job] = msgspec.structs.replace(
            self.views[job],
            state=state,
            finalized_at=CREATED_AT,
            stop_reason=StopReason.CANCEL if state is JobState.CANCELLED else None,
            position=None,
        )

    async def get(self, job: JobId, tenant: str) -> JobView:
        view = self.views.get(job)
        if view is None or view.tenant != tenant:
            raise JobNotFound(f"There is no job '{job}'.")
        return view

    async def list(
        self,
        tenant: str | None,
        states: tuple[JobState, ...],
        tag: tuple[str, str] | None,
        model: str | None,
        after: JobId | None,
        limit: int,
    ) -> JobPage:
        found = [
            view
            for view in sorted(self.views.values(), key=lambda view: view.id, reverse=True)
            if tenant in (None, view.tenant)
            and (not states or view.state in states)
            and (tag is None or view.tags.get(tag[0]) == tag[1])
            and model in (None, view.model)
            and (after is None or view.id < after)
        ]
        return JobPage(jobs=tuple(found[:limit]), has_more=len(found) > limit)


@dataclass(eq=False, kw_only=True)
class FakeDraining:
    """A drain with three jobs in flight, each look at which finishes one."""

    drain: DrainView | None = None
    draining: bool = False
    outcome: str = "completed"
    drains: list[tuple[DrainMode, float]] = field(default_factory=list[tuple[DrainMode, float]])

    async def start(self, mode: DrainMode, timeout_s: float) -> DrainView:
        self.drains.append((mode, timeout_s))
        self.draining = True
        self.drain = self.drain or DrainView(
            id="drain_1",
            mode=mode,
            scope="server",
            state="running",
            started_at=CREATED_AT,
            ended_at=None,
            timeout_s=timeout_s,
            in_flight=3,
            finished=0,
            given_back=0,
            cancelled=0,
        )
        return self.drain

    def status(self) -> DrainView | None:
        view = self.drain
        if view is not None and view.ended_at is None:
            done = view.finished + 1 == view.in_flight
            self.drain = msgspec.structs.replace(
                view,
                finished=view.finished + 1,
                state=self.outcome if done else "running",
                ended_at=CREATED_AT if done else None,
            )
        return view

    async def resume(self) -> None:
        self.draining = False


@dataclass(eq=False, kw_only=True)
class FakeAdministration:
    """Workers that a test says there are, and the models whose budget was reset."""

    living: tuple[WorkerView, ...] = ()
    budgets: dict[str, RestartView] = field(default_factory=dict[str, RestartView])
    resets: list[str] = field(default_factory=list[str])

    def workers(self) -> tuple[WorkerView, ...]:
        return self.living

    def restarts(self) -> list[RestartView]:
        return list(self.budgets.values())

    def reset(self, model: str) -> RestartView:
        self.resets.append(model)
        if model not in self.budgets:
            raise ModelNotFound
        self.budgets[model] = restart_view(model)
        return self.budgets[model]


def restart_view(model: str, **changes: Any) -> RestartView:
    """A budget of which nothing is used, with changes."""
    view = RestartView(
        model=model,
        deaths=0,
        limit=3,
        window_s=60.0,
        exhausted=False,
        next_try_s=None,
        reason=None,
    )
    return msgspec.structs.replace(view, **changes)
