"""The first schema: jobs, attempts, the journal, generations, commands, reports."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STATEMENTS = (
    """
CREATE TABLE job (
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    durability TEXT NOT NULL,
    class TEXT NOT NULL,
    class_rank INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    surface TEXT NOT NULL,
    tenant TEXT NOT NULL,
    model TEXT NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER DEFAULT 0 NOT NULL,
    failures INTEGER DEFAULT 0 NOT NULL,
    max_attempts INTEGER NOT NULL,
    losses INTEGER DEFAULT 0 NOT NULL,
    preemptions INTEGER DEFAULT 0 NOT NULL,
    held_deaths INTEGER DEFAULT 0 NOT NULL,
    held_alone INTEGER DEFAULT 0 NOT NULL,
    created_at INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL,
    available_at INTEGER NOT NULL,
    claimed_at INTEGER,
    deadline_at INTEGER NOT NULL,
    started_at INTEGER,
    finalized_at INTEGER,
    stop_reason TEXT,
    stop_requested_at INTEGER,
    retry_of TEXT,
    parent_job TEXT,
    render_version INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    finish_reason TEXT,
    failure TEXT,
    prompt_tokens INTEGER DEFAULT 0 NOT NULL,
    cached_tokens INTEGER DEFAULT 0 NOT NULL,
    completion_tokens INTEGER DEFAULT 0 NOT NULL,
    reasoning_tokens INTEGER DEFAULT 0 NOT NULL,
    events INTEGER DEFAULT 0 NOT NULL,
    prompt_digest TEXT,
    fingerprint TEXT,
    tags TEXT DEFAULT '{}' NOT NULL,
    settings BLOB NOT NULL,
    request_checksum INTEGER,
    request BLOB,
    CONSTRAINT job_key PRIMARY KEY (id),
    CONSTRAINT job_state_known CHECK (
        state IN ('scheduled', 'available', 'running', 'retryable',
        'completed', 'failed', 'cancelled')
    ),
    CONSTRAINT job_durability_known CHECK (durability IN ('attached', 'stored', 'durable')),
    CONSTRAINT job_class_known CHECK (
        (class = 'interactive' AND class_rank = 0)
        OR (class = 'background' AND class_rank = 1)
        OR (class = 'batch' AND class_rank = 2)
    ),
    CONSTRAINT job_stop_reason_known CHECK (
        stop_reason IS NULL OR stop_reason IN ('cancel', 'deadline', 'parent_lost')
    ),
    CONSTRAINT job_priority_range CHECK (priority BETWEEN -32767 AND 32767),
    CONSTRAINT job_finalized_iff_final CHECK (
        (finalized_at IS NOT NULL) = (state IN ('completed', 'failed', 'cancelled'))
    ),
    CONSTRAINT job_failure_iff_failed CHECK ((failure IS NOT NULL) = (state = 'failed')),
    CONSTRAINT job_finish_reason_only_final CHECK (
        finish_reason IS NULL OR state IN ('completed', 'failed', 'cancelled')
    ),
    CONSTRAINT job_failures_range CHECK (
        max_attempts >= 1 AND failures BETWEEN 0 AND max_attempts
    ),
    CONSTRAINT job_attempt_range CHECK (attempt >= 0 AND (state <> 'running' OR attempt >= 1)),
    CONSTRAINT job_started_by_an_attempt CHECK (started_at IS NULL OR attempt >= 1),
    CONSTRAINT job_counts_range CHECK (
        losses >= 0 AND preemptions >= 0 AND held_deaths >= 0 AND held_alone IN (0, 1)
    ),
    CONSTRAINT job_usage_range CHECK (
        prompt_tokens >= 0
        AND cached_tokens >= 0
        AND completion_tokens >= 0
        AND reasoning_tokens >= 0
    ),
    CONSTRAINT job_events_range CHECK (events >= 0),
    CONSTRAINT job_request_iff_not_attached CHECK (
        (durability = 'attached') = (request IS NULL)
    ),
    CONSTRAINT job_request_has_checksum CHECK ((request IS NULL) = (request_checksum IS NULL)),
    CONSTRAINT job_tags_are_json CHECK (json_valid(tags))
) STRICT
""",
    "CREATE INDEX job_claim ON job (model, class_rank, priority DESC, available_at, id)"
    " WHERE state = 'available'",
    "CREATE INDEX job_deadline ON job (deadline_at) WHERE finalized_at IS NULL",
    "CREATE INDEX job_due ON job (scheduled_at) WHERE state IN ('scheduled', 'retryable')",
    "CREATE INDEX job_finalized ON job (finalized_at) WHERE finalized_at IS NOT NULL",
    "CREATE INDEX job_tenant ON job (tenant, id)",
    """
CREATE TABLE attempt (
    job TEXT NOT NULL,
    number INTEGER NOT NULL,
    generation TEXT NOT NULL,
    claimed_at INTEGER NOT NULL,
    accepted_at INTEGER,
    ended_at INTEGER,
    prompt_tokens INTEGER DEFAULT 0 NOT NULL,
    cached_tokens INTEGER DEFAULT 0 NOT NULL,
    replayed_tokens INTEGER DEFAULT 0 NOT NULL,
    delivered_tokens INTEGER DEFAULT 0 NOT NULL,
    reasoning_tokens INTEGER DEFAULT 0 NOT NULL,
    prefill_tokens INTEGER DEFAULT 0 NOT NULL,
    choice_counts TEXT DEFAULT '{}' NOT NULL,
    outcome TEXT,
    failure TEXT,
    CONSTRAINT attempt_key PRIMARY KEY (job, number),
    CONSTRAINT attempt_number_range CHECK (number >= 1),
    CONSTRAINT attempt_outcome_known CHECK (
        outcome IS NULL
        OR outcome IN ('finished', 'stopped', 'preempted', 'failed', 'refused', 'lost')
    ),
    CONSTRAINT attempt_ended_iff_outcome CHECK ((outcome IS NULL) = (ended_at IS NULL)),
    CONSTRAINT attempt_tokens_range CHECK (
        prompt_tokens >= 0
        AND cached_tokens >= 0
        AND replayed_tokens >= 0
        AND delivered_tokens >= 0
        AND reasoning_tokens >= 0
        AND prefill_tokens >= 0
    ),
    CONSTRAINT attempt_choice_counts_are_json CHECK (json_valid(choice_counts)),
    CONSTRAINT attempt_job_reference FOREIGN KEY(job) REFERENCES job (id) ON DELETE CASCADE
) WITHOUT ROWID, STRICT
""",
    "CREATE INDEX attempt_open ON attempt (generation) WHERE outcome IS NULL",
    """
CREATE TABLE chunk (
    job TEXT NOT NULL,
    number INTEGER NOT NULL,
    first_event INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    choice INTEGER NOT NULL,
    first_token INTEGER NOT NULL,
    token_count INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    tokens BLOB NOT NULL,
    logprobs BLOB NOT NULL,
    parts BLOB NOT NULL,
    CONSTRAINT chunk_key PRIMARY KEY (job, number),
    CONSTRAINT chunk_number_range CHECK (number >= 0),
    CONSTRAINT chunk_events_range CHECK (first_event >= 0 AND last_event >= first_event - 1),
    CONSTRAINT chunk_origin_range CHECK (attempt >= 1 AND choice >= 0),
    CONSTRAINT chunk_tokens_range CHECK (first_token >= 0 AND token_count >= 0),
    CONSTRAINT chunk_job_reference FOREIGN KEY(job) REFERENCES job (id) ON DELETE CASCADE
) WITHOUT ROWID, STRICT
""",
    """
CREATE TABLE generation (
    id TEXT NOT NULL,
    model TEXT NOT NULL,
    state TEXT NOT NULL,
    gate TEXT DEFAULT 'loading' NOT NULL,
    pid INTEGER,
    pid_started INTEGER,
    last_seq INTEGER DEFAULT 0 NOT NULL,
    parent_epoch INTEGER NOT NULL,
    prompt_tokens INTEGER DEFAULT 0 NOT NULL,
    cached_tokens INTEGER DEFAULT 0 NOT NULL,
    completion_tokens INTEGER DEFAULT 0 NOT NULL,
    reasoning_tokens INTEGER DEFAULT 0 NOT NULL,
    jobs INTEGER DEFAULT 0 NOT NULL,
    created_at INTEGER NOT NULL,
    ready_at INTEGER,
    ended_at INTEGER,
    exit_code INTEGER,
    exit_signal INTEGER,
    exit_reason TEXT,
    fingerprint TEXT,
    log_path TEXT NOT NULL,
    CONSTRAINT generation_key PRIMARY KEY (id),
    CONSTRAINT generation_state_known CHECK (
        state IN ('starting', 'ready', 'stopping', 'lost', 'gone')
    ),
    CONSTRAINT generation_gate_known CHECK (
        gate IN ('loading', 'serving', 'rebuilding', 'stopping', 'failed')
    ),
    CONSTRAINT generation_ended_iff_over CHECK (
        (ended_at IS NOT NULL) = (state IN ('lost', 'gone'))
    ),
    CONSTRAINT generation_numbers_range CHECK (last_seq >= 0 AND parent_epoch >= 1),
    CONSTRAINT generation_totals_range CHECK (
        prompt_tokens >= 0
        AND cached_tokens >= 0
        AND completion_tokens >= 0
        AND reasoning_tokens >= 0
        AND jobs >= 0
    ),
    CONSTRAINT generation_exit_once CHECK (exit_code IS NULL OR exit_signal IS NULL)
) STRICT
""",
    "CREATE INDEX generation_open ON generation (id) WHERE state != 'gone'",
    """
CREATE TABLE command (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    generation TEXT NOT NULL,
    job TEXT,
    attempt INTEGER,
    kind TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    params BLOB NOT NULL,
    CONSTRAINT command_id_range CHECK (id >= 1),
    CONSTRAINT command_attempt_iff_job CHECK ((job IS NULL) = (attempt IS NULL)),
    CONSTRAINT command_generation_reference FOREIGN KEY(generation)
        REFERENCES generation (id) ON DELETE CASCADE,
    CONSTRAINT command_job_reference FOREIGN KEY(job) REFERENCES job (id) ON DELETE CASCADE
) STRICT
""",
    "CREATE INDEX command_generation ON command (generation, id)",
    "CREATE INDEX command_job ON command (job, attempt)",
    """
CREATE TABLE report (
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
    CONSTRAINT report_key PRIMARY KEY (id, revision),
    CONSTRAINT report_seq_unique UNIQUE (seq),
    CONSTRAINT report_kind_known CHECK (kind IN ('job', 'generation', 'drain')),
    CONSTRAINT report_revision_once CHECK (
        revision = 1 OR (kind = 'generation' AND revision > 1)
    ),
    CONSTRAINT report_tombstone_range CHECK (tombstone = 0 OR kind = 'generation'),
    CONSTRAINT report_flags CHECK (tombstone IN (0, 1) AND complete IN (0, 1))
) STRICT
""",
    """
CREATE TABLE feed (
    id INTEGER NOT NULL,
    last INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT feed_key PRIMARY KEY (id),
    CONSTRAINT feed_one_row CHECK (id = 1),
    CONSTRAINT feed_last_range CHECK (last >= 0)
) STRICT
""",
    """
CREATE TABLE meta (
    "key" TEXT NOT NULL,
    value TEXT NOT NULL,
    CONSTRAINT meta_key PRIMARY KEY ("key")
) WITHOUT ROWID, STRICT
""",
    """
CREATE TRIGGER job_final_is_final
BEFORE UPDATE OF
    state, attempt, finish_reason, failure,
    created_at, scheduled_at, available_at, claimed_at, deadline_at, started_at, finalized_at,
    prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens
ON job
WHEN OLD.finalized_at IS NOT NULL AND (
    NEW.state IS NOT OLD.state
    OR NEW.attempt IS NOT OLD.attempt
    OR NEW.finish_reason IS NOT OLD.finish_reason
    OR NEW.failure IS NOT OLD.failure
    OR NEW.created_at IS NOT OLD.created_at
    OR NEW.scheduled_at IS NOT OLD.scheduled_at
    OR NEW.available_at IS NOT OLD.available_at
    OR NEW.claimed_at IS NOT OLD.claimed_at
    OR NEW.deadline_at IS NOT OLD.deadline_at
    OR NEW.started_at IS NOT OLD.started_at
    OR NEW.finalized_at IS NOT OLD.finalized_at
    OR NEW.prompt_tokens IS NOT OLD.prompt_tokens
    OR NEW.cached_tokens IS NOT OLD.cached_tokens
    OR NEW.completion_tokens IS NOT OLD.completion_tokens
    OR NEW.reasoning_tokens IS NOT OLD.reasoning_tokens
)
BEGIN
    SELECT RAISE(ABORT, 'a final job never changes');
END
""",
    """
CREATE TRIGGER attempt_end_is_final
BEFORE UPDATE ON attempt
WHEN OLD.outcome IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'an attempt ends once');
END
""",
    """
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
""",
    "INSERT INTO feed (id, last) VALUES (1, 0)",
)
TABLES = ("meta", "feed", "report", "command", "generation", "chunk", "attempt", "job")


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
