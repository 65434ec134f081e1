"""Jobs that wait for others: their rows, and what the end of one does to those that wait for it.

Both steps of an ending ride in its own transaction, whoever ends the job: its outcome is noted with
every job that waits for it, and those that nothing holds back any more become available. So no
crash comes between a predecessor's end and its successors' release. A job with a time of its own
is not released here: it is due by the clock, and ``job.due`` sees that it waits for nobody.
"""

from collections.abc import Sequence
from typing import Final

from app.domain.job import JobState, NewJob
from app.storage.encoding import micros
from app.storage.operations import Params, Rank, Statement, Step
from app.storage.readers import Readers
from app.storage.sql import json_list
from shared.ids import JobId

OPEN: Final = "SELECT 1 FROM dependency WHERE dependency.job = job.id AND outcome IS NULL"
"""Something that the row of ``job`` still waits for."""

_HELD: Final = (
    "SELECT 1 FROM dependency WHERE dependency.job = job.id"
    " AND (outcome IS NULL OR (on_failure = 'fail' AND outcome <> 'completed'))"
)
_AT_ONCE: Final = f"state = 'scheduled' AND scheduled_at <= created_at AND NOT EXISTS ({_HELD})"

_INSERT: Final = Statement(
    "dependency.insert",
    Rank.DEPENDENCY_INSERT,
    "INSERT INTO dependency (job, predecessor, on_failure, outcome)"
    " SELECT :job, id, :on_failure, iif(finalized_at IS NULL, NULL, state) FROM job"
    " WHERE id = :predecessor AND tenant = :tenant",
)
"""Void when there is no such job of this tenant."""

_RELEASE_NEW: Final = Statement(
    "job.release_new",
    Rank.JOB_RELEASE_NEW,
    f"UPDATE job SET state = 'available' WHERE id = :job AND {_AT_ONCE}",  # noqa: S608
    exact=False,
)

_END: Final = Statement(
    "dependency.end",
    Rank.DEPENDENCY_END,
    "UPDATE dependency SET outcome = :state WHERE predecessor = :job AND outcome IS NULL",
    exact=False,
)

_RELEASE: Final = Statement(
    "job.release",
    Rank.JOB_RELEASE,
    "UPDATE job SET state = 'available', available_at = :now"  # noqa: S608
    f" WHERE id IN (SELECT job FROM dependency WHERE predecessor = :job) AND {_AT_ONCE}",
    exact=False,
)


def dependency_steps(new: NewJob) -> list[Step]:
    """The rows of what a new job waits for; it is available at once if that is nothing any more."""
    if not new.after:
        return []
    rows: list[Params] = [
        {
            "job": new.id,
            "predecessor": predecessor,
            "on_failure": new.on_failure,
            "tenant": new.tenant,
        }
        for predecessor in new.after
    ]
    return [
        *(Step(_INSERT, row, str(row["predecessor"])) for row in rows),
        Step(_RELEASE_NEW, {"job": new.id}, new.id),
    ]


def predecessor_end_steps(ended: Params, subject: JobId) -> list[Step]:
    """To be added to whatever ends a job; ``ended`` are the parameters of its ending."""
    return [Step(_END, ended, subject), Step(_RELEASE, ended, subject)]


async def load_outcomes(
    readers: Readers, tenant: str, jobs: Sequence[JobId]
) -> dict[JobId, JobState | None]:
    """How these jobs of a tenant ended, None for open ones; those that are not there are left
    out."""
    found: dict[JobId, JobState | None] = {}
    for start in range(0, len(jobs), _JOBS_A_QUERY):
        asked = json_list(jobs[start : start + _JOBS_A_QUERY])
        for row in await readers.rows(_STATES, {"jobs": asked, "tenant": tenant}):
            state = JobState(row["state"])
            found[JobId(row["id"])] = state if state.final else None
    return found


_JOBS_A_QUERY: Final = 500
_STATES: Final = (
    "SELECT id, state FROM job"
    " WHERE id IN (SELECT value FROM json_each(:jobs)) AND tenant = :tenant"
)


def released_at_once(new: NewJob) -> bool:
    """Whether the end of its last predecessor makes this job available in the same commit."""
    return bool(new.after) and micros(new.scheduled_at) <= micros(new.created_at)
