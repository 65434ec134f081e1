"""Nobody waits for what has happened, and no due fires twice."""

import sqlite3
from collections.abc import Iterator
from typing import Final

from app.storage.encoding import checksum
from app.storage.verify.violation import Rule, Violation, broken, first

_HELD: Final = (
    "SELECT 1 FROM dependency WHERE dependency.job = job.id"
    " AND (outcome IS NULL OR (on_failure = 'fail' AND outcome <> 'completed'))"
)

_DEPENDENCIES: Final = (
    Rule(
        "waits for {}, which is {}",
        "SELECT dependency.job, predecessor, coalesce(job.state, 'not there') FROM dependency"
        " LEFT JOIN job ON job.id = predecessor"
        " WHERE outcome IS NULL AND (job.id IS NULL OR job.finalized_at IS NOT NULL)",
    ),
    Rule(
        "takes {} for {}, which is {}",
        "SELECT dependency.job, predecessor, outcome, job.state FROM dependency"
        " JOIN job ON job.id = predecessor WHERE outcome IS NOT NULL AND outcome <> job.state",
    ),
    Rule(
        "is {}, though something holds it back",
        "SELECT id, state FROM job WHERE state IN ('available', 'running', 'retryable',"  # noqa: S608
        f" 'completed') AND EXISTS ({_HELD})",
    ),
    Rule(
        "is scheduled for no time, and nothing holds it back",
        "SELECT id FROM job WHERE state = 'scheduled' AND scheduled_at <= created_at"  # noqa: S608
        f" AND NOT EXISTS ({_HELD})",
    ),
    Rule(
        "waits for jobs that were submitted later",
        "SELECT DISTINCT job FROM dependency WHERE predecessor >= job",
    ),
)

_SCHEDULES: Final = (
    Rule(
        "is {}, but its next due is {}",
        "SELECT id, state, next_due FROM schedule"
        " WHERE (next_due IS NOT NULL) <> (state = 'active')",
    ),
    Rule(
        "is due at {}, and fired {} before",
        "SELECT id, next_due, last_due FROM schedule WHERE next_due <= last_due",
    ),
    Rule(
        "has fired {} times, the last one at {}",
        "SELECT id, fired, last_due FROM schedule WHERE (fired = 0) <> (last_due IS NULL)",
    ),
    Rule(
        "has fired {} times, but submitted {} jobs up to {}",
        "SELECT schedule.id, fired, count(*), max(due) FROM schedule"
        " JOIN firing ON firing.schedule = schedule.id"
        " GROUP BY schedule.id HAVING count(*) > fired OR max(due) > coalesce(last_due, 0)",
    ),
    Rule(
        "submitted {} for {}, but is of {}",
        "SELECT schedule.id, job.id, job.tenant, schedule.tenant FROM schedule"
        " JOIN firing ON firing.schedule = schedule.id JOIN job ON job.id = firing.job"
        " WHERE job.tenant <> schedule.tenant",
    ),
)


def dependencies(driver: sqlite3.Connection) -> list[Violation]:
    """What waits does so for what is open, and nothing else keeps it."""
    return broken(driver, "dependencies", *_DEPENDENCIES)


def schedules(driver: sqlite3.Connection) -> list[Violation]:
    """Dues go forward, each fires once, and what is submitted is what was asked for."""
    return first([*broken(driver, "schedules", *_SCHEDULES), *_damaged(driver)])


def _damaged(driver: sqlite3.Connection) -> Iterator[Violation]:
    for schedule, stored, draft in driver.execute("SELECT id, checksum, draft FROM schedule"):
        if checksum(draft) != stored:
            yield Violation("schedules", schedule, "what it submits is not what was written")
