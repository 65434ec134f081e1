"""The tables of what waits for other jobs, and of what waits for the clock.

A row of ``dependency`` says that a job waits for another one, and how that one ended: kept when the
other is deleted, since nobody is told of an outcome that could go away. A row of ``firing`` says
that a schedule submitted a job for a due: written with the job, and there is one a due. It outlives
its schedule and goes with its job.
"""

from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from app.domain.job import FINAL_STATES, JobState, OnFailure
from app.domain.schedules import CatchUp, ScheduleState
from app.storage.columns import blob, count, metadata, number, one_of, text

_FINAL: Final = tuple(state for state in JobState if state in FINAL_STATES)

dependency: Final = Table(
    "dependency",
    metadata,
    Column("job", Text, ForeignKey("job.id", ondelete="CASCADE"), nullable=False),
    text("predecessor"),
    text("on_failure"),
    text("outcome", null=True),
    PrimaryKeyConstraint("job", "predecessor"),
    CheckConstraint(one_of("on_failure", tuple(OnFailure)), "on_failure_known"),
    CheckConstraint(f"outcome IS NULL OR {one_of('outcome', _FINAL)}", "outcome_known"),
    CheckConstraint("job <> predecessor", "not_of_itself"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
Index("dependency_predecessor", dependency.c.predecessor)

schedule: Final = Table(
    "schedule",
    metadata,
    text("id"),
    text("tenant"),
    text("name"),
    text("state"),
    text("cron", null=True),
    number("every_ms", null=True),
    text("timezone"),
    number("anchor"),
    text("catch_up"),
    number("next_due", null=True),
    number("last_due", null=True),
    count("fired"),
    number("created_at"),
    number("updated_at"),
    number("checksum"),
    blob("draft"),
    PrimaryKeyConstraint("id"),
    UniqueConstraint("tenant", "name"),
    CheckConstraint(one_of("state", tuple(ScheduleState)), "state_known"),
    CheckConstraint(one_of("catch_up", tuple(CatchUp)), "catch_up_known"),
    CheckConstraint("(cron IS NULL) <> (every_ms IS NULL)", "one_rhythm"),
    CheckConstraint("every_ms IS NULL OR every_ms >= 1000", "every_range"),
    CheckConstraint("(next_due IS NOT NULL) = (state = 'active')", "due_iff_active"),
    CheckConstraint("next_due IS NULL OR last_due IS NULL OR next_due > last_due", "dues_go_on"),
    CheckConstraint("fired >= 0", "fired_range"),
    sqlite_strict=True,
)

firing: Final = Table(
    "firing",
    metadata,
    text("schedule"),
    number("due"),
    Column("job", Text, ForeignKey("job.id", ondelete="CASCADE"), nullable=False),
    number("fired_at"),
    PrimaryKeyConstraint("schedule", "due"),
    UniqueConstraint("job"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
