"""I1: a job ends once. And what each state says about the rest of the row."""

import sqlite3
from typing import Final

from app.domain.job import FINAL_STATES, JobState
from app.domain.worker_state import WorkerState
from app.storage.verify.violation import Rule, Violation, broken


def _listed(values: frozenset[JobState] | type[JobState] | type[WorkerState]) -> str:
    return ", ".join(sorted(f"'{value}'" for value in values))


_FINAL: Final = f"state IN ({_listed(FINAL_STATES)})"

_ENDINGS: Final = (
    Rule(
        "is {}, but its end has the time {}",
        "SELECT id, state, finalized_at FROM job"  # noqa: S608
        f" WHERE (finalized_at IS NOT NULL) <> ({_FINAL})",
    ),
    Rule(
        "is {}, but its failure is {}",
        "SELECT id, state, coalesce(failure, 'missing') FROM job"
        " WHERE (failure IS NOT NULL) <> (state = 'failed')",
    ),
    Rule(
        "is {} and has a finish reason",
        "SELECT id, state FROM job"  # noqa: S608
        f" WHERE finish_reason IS NOT NULL AND NOT ({_FINAL})",
    ),
    Rule(
        "has ended, but its attempt {} is open",
        "SELECT job.id, attempt.number FROM attempt CROSS JOIN job ON job.id = attempt.job"  # noqa: S608
        f" WHERE attempt.outcome IS NULL AND {_FINAL}",
    ),
    Rule(
        "is completed, but its last attempt did not finish",
        "SELECT id FROM job WHERE state = 'completed' AND NOT EXISTS (SELECT 1 FROM attempt"
        " WHERE attempt.job = job.id AND attempt.number = job.attempt"
        " AND attempt.outcome = 'finished' AND attempt.accepted_at IS NOT NULL)",
    ),
    Rule(
        "is kept until {}, which is not {} ms after its end",
        "SELECT id, keep_until, keep_ms FROM job WHERE finalized_at IS NOT NULL"
        " AND keep_until IS NOT finalized_at + keep_ms * 1000",
    ),
)

_STATES: Final = (
    Rule(
        "is in no known state: {}",
        f"SELECT id, state FROM job WHERE state NOT IN ({_listed(JobState)})",  # noqa: S608
    ),
    Rule(
        "is {}, but its claim has the time {}",
        "SELECT id, state, claimed_at FROM job WHERE finalized_at IS NULL"
        " AND (claimed_at IS NOT NULL) <> (state = 'running')",
    ),
    Rule(
        "is scheduled, but was tried {} times",
        "SELECT id, attempt FROM job WHERE state = 'scheduled' AND attempt <> 0",
    ),
    Rule(
        "is to be tried again, but never failed",
        "SELECT id FROM job WHERE state = 'retryable' AND failures = 0",
    ),
    Rule(
        "has failed more often than its {} attempts",
        "SELECT id, max_attempts FROM job WHERE failures > max_attempts",
    ),
    Rule(
        "was asked to stop for {} at {}",
        "SELECT id, stop_reason, stop_requested_at FROM job"
        " WHERE (stop_reason IS NULL) <> (stop_requested_at IS NULL)",
    ),
    Rule(
        "is in no known state: {}",
        f"SELECT id, state FROM generation WHERE state NOT IN ({_listed(WorkerState)})",  # noqa: S608
    ),
    Rule(
        "is {}, but its end has the time {}",
        "SELECT id, state, ended_at FROM generation"
        " WHERE (ended_at IS NOT NULL) <> (state IN ('lost', 'gone'))",
    ),
    Rule(
        "is {}, but its end has the time {}",
        "SELECT id, state, ended_at FROM drain"
        " WHERE (ended_at IS NOT NULL) <> (state <> 'running')",
    ),
    Rule(
        "is completed, but {} of {} are accounted for",
        "SELECT id, finished + given_back + cancelled, in_flight FROM drain"
        " WHERE state = 'completed' AND finished + given_back + cancelled <> in_flight",
    ),
)


def endings(driver: sqlite3.Connection) -> list[Violation]:
    """I1: what has ended is final, whole, and held by no worker."""
    return broken(driver, "I1", *_ENDINGS)


def states(driver: sqlite3.Connection) -> list[Violation]:
    """Each state is a known one and fits the row it stands in."""
    return broken(driver, "states", *_STATES)
