"""I3: each ended job and drain has exactly one report; and what a report says is so."""

import sqlite3
from collections.abc import Iterator
from typing import Final

import msgspec

from app.domain.job import Usage
from app.storage.encoding import failure_from_row, micros
from app.storage.reports import JobReport
from app.storage.verify.violation import Row, Rule, Violation, broken, first
from shared.ids import report_id

_KEPT: Final = (
    "((SELECT pruned FROM feed) = 0 OR {} > (SELECT min(created_at) FROM report) + 3600000000)"
)
"""Whether the report of what ended then was not deleted as old. An hour's grace, since within a
commit reports do not stand by time."""

_ONCE: Final = (
    Rule(
        "has ended, but has no report",
        f"SELECT id FROM job WHERE finalized_at IS NOT NULL AND {_KEPT.format('finalized_at')}"  # noqa: S608
        " AND id NOT IN (SELECT subject FROM report WHERE kind = 'job')",
    ),
    Rule(
        "has not ended, but has a report",
        "SELECT job.id FROM report CROSS JOIN job ON job.id = report.subject"
        " WHERE report.kind = 'job' AND job.finalized_at IS NULL",
    ),
    Rule(
        "has ended, but has no report",
        f"SELECT id FROM drain WHERE state <> 'running' AND {_KEPT.format('ended_at')}"  # noqa: S608
        " AND id NOT IN (SELECT subject FROM report WHERE kind = 'drain')",
    ),
    Rule(
        "has a report, but {}",
        "SELECT subject, iif(drain.id IS NULL, 'never was', 'still runs')"
        " FROM report LEFT JOIN drain ON drain.id = report.subject"
        " WHERE kind = 'drain' AND (drain.id IS NULL OR drain.state = 'running')",
    ),
    Rule(
        "has {} reports",
        "SELECT subject, count(*) FROM report WHERE kind <> 'generation'"
        " GROUP BY kind, subject HAVING count(*) > 1",
    ),
)

_JOBS: Final = (
    "SELECT report.subject, report.outcome, report.reason, report.complete, report.created_at,"
    " report.payload, job.state, job.finish_reason, job.failure, job.finalized_at, job.attempt,"
    " job.prompt_tokens, job.cached_tokens, job.completion_tokens, job.reasoning_tokens"
    " FROM report CROSS JOIN job ON job.id = report.subject"
    " WHERE report.kind = 'job' AND job.finalized_at IS NOT NULL"
)


def reports(driver: sqlite3.Connection) -> list[Violation]:
    """I3: a report for each ending, none without one, ids derived from subjects."""
    return first([*broken(driver, "I3", *_ONCE), *_underived(driver)])


def reports_agree(driver: sqlite3.Connection) -> list[Violation]:
    """I1: a job's report says what its row says."""
    return first(
        Violation("I1", str(row[0]), f"its report disagrees about {what}")
        for row in driver.execute(_JOBS)
        for what in _differences(row)
    )


def _underived(driver: sqlite3.Connection) -> Iterator[Violation]:
    for kind, subject, found in driver.execute("SELECT kind, subject, id FROM report"):
        if report_id(kind, subject) != found:
            yield Violation("I3", subject, f"its report's id {found} is not derived from it")


def _differences(row: Row) -> list[str]:
    _, outcome, reason, complete, created_at, payload, state, finish_reason, failure = row[:9]
    finalized_at, attempt, *tokens = row[9:]
    try:
        told = msgspec.json.decode(payload, type=JobReport)
        failed = failure_from_row(failure)
    except msgspec.DecodeError as error:
        return [f"everything: {error}"]
    usage = Usage(
        prompt_tokens=tokens[0],
        cached_tokens=tokens[1],
        completion_tokens=tokens[2],
        reasoning_tokens=tokens[3],
    )
    agree = {
        "the outcome": told.outcome == outcome == state,
        "the reason": told.reason == reason == (failed.code if failed else finish_reason),
        "its completeness": told.complete == bool(complete),
        "the time": micros(told.timings.finalized_at) == created_at == finalized_at,
        "the usage": told.usage == usage,
        "the attempts": told.attempts == attempt,
    }
    return [what for what, so in agree.items() if not so]
