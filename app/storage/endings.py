"""The statements that take a job out of a worker's hands: it ends, or goes back.

Both are fenced by the attempt and by the stop reason that the decision was based on: a cancel that
was committed in between makes them void, and whoever decided decides again.
"""

from datetime import datetime
from typing import Final, Literal

import msgspec

from app.domain.job import Ending, JobState, StopReason
from app.storage.dependencies import predecessor_end_steps
from app.storage.encoding import failure_to_row, micros
from app.storage.operations import Params, Rank, Statement, Step
from shared.failures import Failure
from shared.ids import JobId

AttemptOutcome = Literal["finished", "stopped", "preempted", "failed", "refused", "lost"]

_FINAL_COLUMNS: Final = (
    "state = :state, finalized_at = :now, finish_reason = :finish_reason, failure = :failure,"
    " prompt_tokens = :prompt, cached_tokens = :cached, completion_tokens = :completion,"
    " reasoning_tokens = :reasoning, events = events + 1, keep_until = :now + keep_ms * 1000"
)

END_WAITING: Final = Statement(
    "job.end_waiting",
    Rank.JOB_END_WAITING,
    f"UPDATE job SET {_FINAL_COLUMNS}"  # noqa: S608 - our own constant
    " WHERE id = :job AND attempt = :attempt"
    " AND (state = :expected OR (:expected = 'scheduled' AND state = 'available'"
    " AND EXISTS (SELECT 1 FROM dependency WHERE dependency.job = :job)))",
)
"""A job that waited for others and is taken for scheduled may be available: the end of the last one
made it so, and whoever decides here was not told yet. Nobody can have claimed it."""

END_RUNNING: Final = Statement(
    "job.end",
    Rank.JOB_END,
    f"UPDATE job SET {_FINAL_COLUMNS}, failures = min(failures + :failed, max_attempts)"  # noqa: S608
    " WHERE id = :job AND state = 'running' AND attempt = :attempt"
    " AND stop_reason IS :stop_reason",
)

GIVE_BACK: Final = Statement(
    "job.give_back",
    Rank.JOB_GIVE_BACK,
    "UPDATE job SET state = :state, available_at = :due, scheduled_at = :due, claimed_at = NULL,"
    " losses = losses + :lost, preemptions = preemptions + :preempted,"
    " failures = failures + :failed, held_deaths = :held_deaths, held_alone = :held_alone"
    " WHERE id = :job AND state = 'running' AND attempt = :attempt AND stop_reason IS NULL",
)

END_ATTEMPT: Final = Statement(
    "attempt.end",
    Rank.ATTEMPT_END,
    "UPDATE attempt SET outcome = :outcome, ended_at = :now, failure = :failure,"
    " reasoning_tokens = reasoning_tokens + :reasoning"
    " WHERE job = :job AND number = :attempt AND outcome IS NULL",
)

DROP_COMMANDS: Final = Statement(
    "command.drop_job",
    Rank.COMMAND_DROP_JOB,
    "DELETE FROM command WHERE job = :job AND attempt = :attempt",
    exact=False,
)
"""The end of an attempt answers every command about it."""


class GiveBack(msgspec.Struct, frozen=True, kw_only=True):
    """A running job that no worker holds any more and that goes on later.

    ``due_at`` is when it may be claimed again. With ``outcome`` ``failed`` it becomes ``retryable``
    and one of its ``max_attempts`` is used up; with any other it is ``available`` and none is.
    """

    job: JobId
    attempt: int
    outcome: AttemptOutcome
    now: datetime
    due_at: datetime
    failure: Failure | None = None
    counted: bool = True
    """Whether a loss or a pre-emption counts against its own limit."""
    held_deaths: int = 0
    """Deaths of workers that are held against the job by now."""
    held_alone: bool = False
    """Whether it must run alone, until it gets further."""


def running_end_steps(
    ending: Ending,
    stop_reason: StopReason | None,
    outcome: AttemptOutcome,
    attempt_reasoning: int = 0,
) -> list[Step]:
    """End a running job together with its attempt."""
    params = dict(ending_params(ending))
    params["stop_reason"] = stop_reason
    params["failed"] = int(outcome == "failed")
    attempt = _attempt_end(
        ending.job, ending.attempt, outcome, ending.finalized_at, ending.failure, attempt_reasoning
    )
    followed = predecessor_end_steps(params, ending.job)
    return [Step(END_RUNNING, params, ending.job), *followed, *attempt]


def give_back_steps(back: GiveBack) -> list[Step]:
    """Put a running job back and end its attempt."""
    failed = back.outcome == "failed"
    params: Params = {
        "job": back.job,
        "attempt": back.attempt,
        "state": JobState.RETRYABLE if failed else JobState.AVAILABLE,
        "due": micros(back.due_at),
        "lost": int(back.counted and back.outcome == "lost"),
        "preempted": int(back.counted and back.outcome == "preempted"),
        "failed": int(failed),
        "held_deaths": back.held_deaths,
        "held_alone": int(back.held_alone),
    }
    attempt = _attempt_end(back.job, back.attempt, back.outcome, back.now, back.failure, 0)
    return [Step(GIVE_BACK, params, back.job), *attempt]


def ending_params(ending: Ending) -> Params:
    """The parameters that every statement that ends a job shares."""
    return {
        "job": ending.job,
        "attempt": ending.attempt,
        "state": ending.state,
        "now": micros(ending.finalized_at),
        "finish_reason": ending.finish_reason,
        "failure": failure_to_row(ending.failure),
        "prompt": ending.usage.prompt_tokens,
        "cached": ending.usage.cached_tokens,
        "completion": ending.usage.completion_tokens,
        "reasoning": ending.usage.reasoning_tokens,
    }


def outcome_of(ending: Ending) -> AttemptOutcome:
    """What the last attempt of a job that ended so came to, when nothing else is known."""
    if ending.state is JobState.COMPLETED:
        return "finished"
    return "stopped" if ending.state is JobState.CANCELLED else "failed"


def _attempt_end(
    job: JobId,
    attempt: int,
    outcome: AttemptOutcome,
    now: datetime,
    failure: Failure | None,
    reasoning: int,
) -> list[Step]:
    end: Params = {
        "job": job,
        "attempt": attempt,
        "outcome": outcome,
        "now": micros(now),
        "failure": failure_to_row(failure),
        "reasoning": reasoning,
    }
    return [
        Step(END_ATTEMPT, end, job),
        Step(DROP_COMMANDS, {"job": job, "attempt": attempt}, job),
    ]
