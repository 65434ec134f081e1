"""I5: the fence. Attempts are counted without a gap, and one at most is open."""

import sqlite3
from typing import Final

from app.storage.verify.violation import Rule, Violation, broken

_FENCE: Final = (
    Rule(
        "is at attempt {}, but has {} of which the last is {}",
        "SELECT job.id, job.attempt, count(attempt.number), coalesce(max(attempt.number), 0)"
        " FROM job LEFT JOIN attempt ON attempt.job = job.id GROUP BY job.id"
        " HAVING count(attempt.number) <> job.attempt"
        " OR coalesce(max(attempt.number), 0) <> job.attempt",
    ),
    Rule(
        "is {} at attempt {}, but its attempt {} is open",
        "SELECT job.id, job.state, job.attempt, attempt.number"
        " FROM attempt CROSS JOIN job ON job.id = attempt.job WHERE attempt.outcome IS NULL"
        " AND (job.state <> 'running' OR attempt.number <> job.attempt)",
    ),
    Rule(
        "is running, but no attempt is open",
        "SELECT id FROM job WHERE state = 'running' AND NOT EXISTS (SELECT 1 FROM attempt"
        " WHERE attempt.job = job.id AND attempt.number = job.attempt AND outcome IS NULL)",
    ),
    Rule(
        "has its attempt {} open on {}, which is {}",
        "SELECT attempt.job, attempt.number, generation.id, generation.state FROM attempt"
        " CROSS JOIN generation ON generation.id = attempt.generation"
        " WHERE attempt.outcome IS NULL AND generation.state IN ('lost', 'gone')",
    ),
    Rule(
        "had its attempt {} on {}, which never was",
        "SELECT job, number, generation FROM attempt"
        " WHERE generation NOT IN (SELECT id FROM generation)",
    ),
    Rule(
        "has started, but no attempt was accepted",
        "SELECT id FROM job WHERE started_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM attempt"
        " WHERE attempt.job = job.id AND accepted_at IS NOT NULL)",
    ),
    Rule(
        "has an accepted attempt, but has not started",
        "SELECT DISTINCT job.id FROM job JOIN attempt ON attempt.job = job.id"
        " WHERE job.started_at IS NULL AND attempt.accepted_at IS NOT NULL",
    ),
    Rule(
        "has output of attempt {}, which never was",
        "SELECT job, attempt FROM (SELECT DISTINCT job, attempt FROM chunk"
        " EXCEPT SELECT job, number FROM attempt)",
    ),
)


def fence(driver: sqlite3.Connection) -> list[Violation]:
    """I5: who may write to a job, and who may not any more, is never in doubt."""
    return broken(driver, "I5", *_FENCE)
