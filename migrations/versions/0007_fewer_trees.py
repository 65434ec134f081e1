"""Fewer B-trees for each job.

The number of a ``RunJob`` stands in its attempt: its row among the commands was written, indexed
twice and deleted again for every job. Reports are clustered by their place in the feed and unique
by subject; by their ids, which look like chance, each changed a page of its own. Nobody asks for
the waiting jobs of a model in order: the dispatcher has them in memory.
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

CLAIM_INDEX = (
    "CREATE INDEX job_claim ON job (model, class_rank, priority DESC, available_at, id)"
    " WHERE state = 'available'"
)

COLUMNS = """
    id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    tombstone INTEGER DEFAULT 0 NOT NULL,
    rank INTEGER DEFAULT 0 NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT,
    complete INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    payload BLOB NOT NULL,
"""
CHECKS = """
    CONSTRAINT report_kind_known CHECK ((kind = 'job' OR kind = 'generation' OR kind = 'drain')),
    CONSTRAINT report_revision_once CHECK (revision = 1 OR (kind = 'generation' AND revision > 1)),
    CONSTRAINT report_tombstone_range CHECK (tombstone = 0 OR kind = 'generation'),
    CONSTRAINT report_flags CHECK (tombstone IN (0, 1) AND complete IN (0, 1))
"""
BY_PLACE = """
    CONSTRAINT report_key PRIMARY KEY (seq),
    CONSTRAINT report_once UNIQUE (subject, kind, revision),
"""
BY_ID = """
    CONSTRAINT report_key PRIMARY KEY (id, revision),
    CONSTRAINT report_seq_unique UNIQUE (seq),
"""
IMMUTABLE = """
CREATE TRIGGER report_is_immutable
BEFORE UPDATE ON report
WHEN OLD.seq > 0 AND (
    NEW.id IS NOT OLD.id
    OR NEW.revision IS NOT OLD.revision
    OR NEW.seq IS NOT OLD.seq
    OR NEW.kind IS NOT OLD.kind
    OR NEW.subject IS NOT OLD.subject
    OR NEW.rank IS NOT OLD.rank
    OR NEW.outcome IS NOT OLD.outcome
    OR NEW.reason IS NOT OLD.reason
    OR NEW.complete IS NOT OLD.complete
    OR NEW.created_at IS NOT OLD.created_at
    OR NEW.payload IS NOT OLD.payload
    OR NEW.tombstone < OLD.tombstone
)
BEGIN
    SELECT RAISE(ABORT, 'a report never changes');
END
"""


def upgrade() -> None:
    op.execute("DROP INDEX job_claim")
    op.execute("ALTER TABLE attempt ADD COLUMN command INTEGER")
    op.execute(
        "UPDATE attempt SET command = (SELECT max(id) FROM command WHERE kind = 'run_job'"
        " AND command.job = attempt.job AND command.attempt = attempt.number)"
        " WHERE outcome IS NULL"
    )
    op.execute("DELETE FROM command WHERE kind = 'run_job'")
    _reports(BY_PLACE)


def downgrade() -> None:
    op.execute(CLAIM_INDEX)
    op.execute(
        "INSERT INTO command (id, generation, job, attempt, kind, created_at, params)"
        " SELECT command, generation, job, number, 'run_job', claimed_at, x'' FROM attempt"
        " WHERE outcome IS NULL AND accepted_at IS NULL AND command IS NOT NULL"
    )
    op.execute(
        "INSERT INTO sqlite_sequence (name, seq) SELECT 'command', 0"
        " WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'command')"
    )
    op.execute(
        "UPDATE sqlite_sequence SET seq = max(seq, (SELECT coalesce(max(command), 0) FROM attempt))"
        " WHERE name = 'command'"
    )
    op.execute("ALTER TABLE attempt DROP COLUMN command")
    _reports(BY_ID)


def _reports(keys: str) -> None:
    op.execute(f"CREATE TABLE report_new ({COLUMNS}{keys}{CHECKS}) STRICT")
    op.execute("INSERT INTO report_new SELECT * FROM report ORDER BY seq")
    op.execute("DROP TABLE report")
    op.execute("ALTER TABLE report_new RENAME TO report")
    op.execute(IMMUTABLE)
