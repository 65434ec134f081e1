"""What is read of a job's row: all but its request, and what other tables say of it."""

import sqlalchemy as sa

from app.storage.tables import firing, job

_AFTER = sa.text(
    "(SELECT json_group_array(json_array(predecessor, outcome, on_failure)) FROM dependency"
    " WHERE dependency.job = job.id) AS after"
)
_FIRED_BY = (
    sa.select(firing.c.schedule).where(firing.c.job == job.c.id).scalar_subquery().label("schedule")
)
JOB = sa.select(
    *(column for column in job.c if column.name not in ("request", "request_checksum", "pad")),
    _AFTER,
    _FIRED_BY,
)
