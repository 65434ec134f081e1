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
from app.storage.operations import Params, Rank, Statement, Step, Value
from shared.failures import Failure
from shared.ids import JobId

AttemptOutcome = Literal["finished", "stopped", "preempted", "failed", "refused", "lost"]

FINAL_SET: Final = (
    "state = :state, finalized_at = :now, finish_reason = :finish_reason, failure = :failure,"
    " prompt_tokens = :prompt, cached_tokens = :cached, completion_tokens = :completion,"
    " reasoning_tokens = :reasoning, keep_until = :now + keep_ms * 1000"
)
"""Every ending; it takes an event number besides."""

RUNNING_WHERE: Final = "id = :job AND state = 'running' AND attempt = :attempt"
"""The fence of everything that is about a running attempt of a job."""

OPEN_ATTEMPT_WHERE: Final = "job = :job AND number = :attempt AND outcome IS NULL"
END_RUNNING_SET: Final = "failures = min(failures + :failed, max_attempts)"
END_RUNNING_WHERE: Final = "stop_reason IS :stop_reason"
GIVE_BACK_SET: Final = (
    "state = :state, available_at = :due, scheduled_at = :due, claimed_at = NULL,"
    " losses = losses + :lost, preemptions = preemptions + :preempted,"
    " failures = failures + :failed, held_deaths = :held_deaths, held_alone = :held_alone"
)
GIVE_BACK_WHERE: Final = "stop_reason IS NULL"
END_ATTEMPT_SET: Final = (
    "outcome = :outcome, ended_at = :now, failure = :failure,"
    " reasoning_tokens = reasoning_tokens + :attempt_reasoning"
)

END_WAITING: Final = Statement(
    "job.end_waiting",
    Rank.JOB_END_WAITING,
    f"UPDATE job SET {FINAL_SET}, events = events + 1"  # noqa: S608 - our own constant
    " WHERE id = :job AND attempt = :attempt"
    " AND (state = :expected OR (:expected = 'scheduled' AND state = 'available'"
    " AND EXISTS (SELECT 1 FROM dependency WHERE dependency.job = :job)))",
)
"""A job that waited for others and is taken for scheduled may be available: the end of the last one
made it so, and whoever decides here was not told yet. Nobody can have claimed it."""

END_RUNNING: Final = Statement(
    "job.end",
    Rank.JOB_END,
    f"UPDATE job SET {FINAL_SET}, {END_RUNNING_SET}, events = events + 1"  # noqa: S608
    f" WHERE {RUNNING_WHERE} AND {END_RUNNING_WHERE}",
)

GIVE_BACK: Final = Statement(
    "job.give_back",
    Rank.JOB_GIVE_BACK,
    f"UPDATE job SET {GIVE_BACK_SET}"  # noqa: S608
    f" WHERE {RUNNING_WHERE} AND {GIVE_BACK_WHERE}",
)

END_ATTEMPT: Final = Statement(
    "attempt.end",
    Rank.ATTEMPT_END,
    f"UPDATE attempt SET {END_ATTEMPT_SET} WHERE {OPEN_ATTEMPT_WHERE}",  # noqa: S608
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


def running_end_params(
    ending: Ending,
    stop_reason: StopReason | None,
    outcome: AttemptOutcome,
    attempt_reasoning: int = 0,
) -> dict[str, Value]:
    """The parameters that end a running job together with its attempt."""
    return {
        **ending_params(ending),
        "stop_reason": stop_reason.value if stop_reason else None,
        "failed": int(outcome == "failed"),
        "outcome": outcome,
        "attempt_reasoning": attempt_reasoning,
    }


def running_end_steps(
    ending: Ending, stop_reason: StopReason | None, outcome: AttemptOutcome
) -> list[Step]:
    """End a running job together with its attempt."""
    params = running_end_params(ending, stop_reason, outcome)
    return _with_attempt(END_RUNNING, params, ending.job, predecessor_end_steps(params, ending.job))


def give_back_params(back: GiveBack) -> dict[str, Value]:
    """The parameters that put a running job back and end its attempt."""
    failed = back.outcome == "failed"
    return {
        "job": back.job,
        "attempt": back.attempt,
        "state": (JobState.RETRYABLE if failed else JobState.AVAILABLE).value,
        "due": micros(back.due_at),
        "lost": int(back.counted and back.outcome == "lost"),
        "preempted": int(back.counted and back.outcome == "preempted"),
        "failed": int(failed),
        "held_deaths": back.held_deaths,
        "held_alone": int(back.held_alone),
        "outcome": back.outcome,
        "now": micros(back.now),
        "failure": failure_to_row(back.failure),
        "attempt_reasoning": 0,
    }


def give_back_steps(back: GiveBack) -> list[Step]:
    """Put a running job back and end its attempt."""
    return _with_attempt(GIVE_BACK, give_back_params(back), back.job, [])


def ending_params(ending: Ending) -> Params:
    """The parameters that every statement that ends a job shares."""
    usage = ending.usage
    return {
        "job": ending.job,
        "attempt": ending.attempt,
        "state": ending.state.value,
        "now": micros(ending.finalized_at),
        "finish_reason": ending.finish_reason,
        "failure": failure_to_row(ending.failure),
        "prompt": usage.prompt_tokens,
        "cached": usage.cached_tokens,
        "completion": usage.completion_tokens,
        "reasoning": usage.reasoning_tokens,
    }


def outcome_of(ending: Ending) -> AttemptOutcome:
    """What the last attempt of a job that ended so came to, when nothing else is known."""
    if ending.state is JobState.COMPLETED:
        return "finished"
    return "stopped" if ending.state is JobState.CANCELLED else "failed"


def _with_attempt(
    statement: Statement, params: Params, job: JobId, followed: list[Step]
) -> list[Step]:
    return [
        Step(statement, params, job),
        *followed,
        Step(END_ATTEMPT, params, job),
        Step(DROP_COMMANDS, params, job),
    ]
