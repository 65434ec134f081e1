"""Jobs that wait for other jobs, and jobs that are submitted by the clock."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

DEPENDENCY = """
CREATE TABLE dependency (
    job TEXT NOT NULL,
    predecessor TEXT NOT NULL,
    on_failure TEXT NOT NULL,
    outcome TEXT,
    CONSTRAINT dependency_key PRIMARY KEY (job, predecessor),
    CONSTRAINT dependency_on_failure_known CHECK (on_failure IN ('fail', 'run')),
    CONSTRAINT dependency_outcome_known CHECK (
        outcome IS NULL OR outcome IN ('completed', 'failed', 'cancelled')
    ),
    CONSTRAINT dependency_not_of_itself CHECK (job <> predecessor),
    CONSTRAINT dependency_job_reference FOREIGN KEY(job) REFERENCES job (id) ON DELETE CASCADE
) WITHOUT ROWID, STRICT
"""
OUTCOME = """
CREATE TRIGGER dependency_outcome_is_final
BEFORE UPDATE ON dependency
WHEN OLD.outcome IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a predecessor ends once');
END
"""

SCHEDULE = """
CREATE TABLE schedule (
    id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    cron TEXT,
    every_ms INTEGER,
    timezone TEXT NOT NULL,
    anchor INTEGER NOT NULL,
    catch_up TEXT NOT NULL,
    next_due INTEGER,
    last_due INTEGER,
    fired INTEGER DEFAULT 0 NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    draft BLOB NOT NULL,
    CONSTRAINT schedule_key PRIMARY KEY (id),
    CONSTRAINT schedule_tenant_unique UNIQUE (tenant, name),
    CONSTRAINT schedule_state_known CHECK (state IN ('active', 'paused')),
    CONSTRAINT schedule_catch_up_known CHECK (catch_up IN ('one', 'none')),
    CONSTRAINT schedule_one_rhythm CHECK ((cron IS NULL) <> (every_ms IS NULL)),
    CONSTRAINT schedule_every_range CHECK (every_ms IS NULL OR every_ms >= 1000),
    CONSTRAINT schedule_due_iff_active CHECK ((next_due IS NOT NULL) = (state = 'active')),
    CONSTRAINT schedule_dues_go_on CHECK (
        next_due IS NULL OR last_due IS NULL OR next_due > last_due
    ),
    CONSTRAINT schedule_fired_range CHECK (fired >= 0)
) STRICT
"""

FIRING = """
CREATE TABLE firing (
    schedule TEXT NOT NULL,
    due INTEGER NOT NULL,
    job TEXT NOT NULL,
    fired_at INTEGER NOT NULL,
    CONSTRAINT firing_key PRIMARY KEY (schedule, due),
    CONSTRAINT firing_job_unique UNIQUE (job),
    CONSTRAINT firing_job_reference FOREIGN KEY(job) REFERENCES job (id) ON DELETE CASCADE
) WITHOUT ROWID, STRICT
"""


def upgrade() -> None:
    op.execute(DEPENDENCY)
    op.execute("CREATE INDEX dependency_predecessor ON dependency (predecessor)")
    op.execute(OUTCOME)
    op.execute(SCHEDULE)
    op.execute(FIRING)


def downgrade() -> None:
    op.execute("DROP TABLE firing")
    op.execute("DROP TABLE schedule")
    op.execute("DROP TABLE dependency")
