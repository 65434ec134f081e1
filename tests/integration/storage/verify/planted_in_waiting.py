"""What cannot be of jobs that wait, and of schedules: invariant, subject, message, script."""

from typing import Final

_WAITS = (
    "INSERT INTO dependency (job, predecessor, on_failure, outcome)"
    " VALUES (:{job}, :{after}, 'fail', {outcome})"
)
_SCHEDULE = (
    "INSERT INTO schedule (id, tenant, name, state, every_ms, timezone, anchor, catch_up,"
    " next_due, last_due, fired, created_at, updated_at, checksum, draft) VALUES ('s', 'default',"
    " 'n', '{state}', 1000, 'UTC', 1, 'one', {next_due}, {last_due}, {fired}, 1, 1, 0, x'')"
)
_FIRING = "INSERT INTO firing (schedule, due, job, fired_at) VALUES ('s', {due}, :{job}, 1)"


def waits(job: str, after: str, outcome: str) -> str:
    return _WAITS.format(job=job, after=after, outcome=outcome)


def schedule(
    state: str = "active", next_due: str = "9", last_due: str = "5", fired: int = 1
) -> str:
    return _SCHEDULE.format(state=state, next_due=next_due, last_due=last_due, fired=fired)


def firing(due: int, job: str) -> str:
    return _FIRING.format(due=due, job=job)


PLANTED_IN_WAITING: Final = [
    (
        "dependencies",
        "eight",
        "which is cancelled",
        f"UPDATE job SET state = 'scheduled' WHERE id = :eight; {waits('eight', 'five', 'NULL')}",
    ),
    (
        "dependencies",
        "eight",
        "waits for gen_00000000000000000000000000000001, which is not there",
        waits("eight", "first", "NULL"),
    ),
    (
        "dependencies",
        "eight",
        "for completed, which is cancelled",
        waits("eight", "five", "'completed'"),
    ),
    (
        "dependencies",
        "eight",
        "is available, though something holds it back",
        waits("eight", "two", "NULL"),
    ),
    (
        "dependencies",
        "eight",
        "though something holds it back",
        waits("eight", "five", "'cancelled'"),
    ),
    (
        "dependencies",
        "eight",
        "is scheduled for no time, and nothing holds it back",
        f"UPDATE job SET state = 'scheduled' WHERE id = :eight;"
        f"{waits('eight', 'one', chr(39) + 'completed' + chr(39))}",
    ),
    (
        "dependencies",
        "two",
        "waits for jobs that were submitted later",
        waits("two", "eight", "NULL"),
    ),
    ("schedules", "s", "is paused, but its next due is 9", schedule(state="paused")),
    ("schedules", "s", "is due at 5, and fired 5 before", schedule(next_due="5")),
    (
        "schedules",
        "s",
        "has fired 2 times, the last one at None",
        schedule(last_due="NULL", fired=2),
    ),
    (
        "schedules",
        "s",
        "has fired 1 times, but submitted 2 jobs up to 5",
        f"{schedule()}; {firing(4, 'one')}; {firing(5, 'two')}",
    ),
    (
        "schedules",
        "s",
        "but submitted 1 jobs up to 7",
        f"{schedule()}; {firing(7, 'one')}",
    ),
    (
        "schedules",
        "s",
        "for others, but is of default",
        f"{schedule()}; {firing(5, 'one')}; UPDATE job SET tenant = 'others' WHERE id = :one",
    ),
    (
        "schedules",
        "s",
        "what it submits is not what was written",
        schedule() + "; UPDATE schedule SET checksum = 1",
    ),
]
