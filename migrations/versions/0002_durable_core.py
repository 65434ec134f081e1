"""Time limits and keep times of jobs; idempotency keys; drains.

``job`` and ``chunk`` are made anew, so that their wide columns stay last: a column behind
``request`` would be read through the whole of it, and a pad must lie in front of what it protects.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JOB_COLUMNS = (
    "id, kind, durability, class, class_rank, priority, surface, tenant, model, state, attempt,"
    " failures, max_attempts, losses, preemptions, held_deaths, held_alone, created_at,"
    " scheduled_at, available_at, claimed_at, deadline_at, started_at, finalized_at, stop_reason,"
    " stop_requested_at, retry_of, parent_job, render_version, seed, finish_reason, failure,"
    " prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, events, prompt_digest,"
    " fingerprint, tags, settings, request_checksum, request"
)
CHUNK_COLUMNS = (
    "job, number, first_event, last_event, attempt, choice, first_token, token_count, checksum,"
    " tokens, logprobs, parts"
)

NEW_JOB = """
CREATE TABLE job_new (
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
    attempt_timeout_ms INTEGER,
    started_at INTEGER,
    finalized_at INTEGER,
    keep_ms INTEGER,
    keep_until INTEGER,
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
    pad BLOB,
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
    CONSTRAINT job_tags_are_json CHECK (json_valid(tags)),
    CONSTRAINT job_timeout_range CHECK (attempt_timeout_ms IS NULL OR attempt_timeout_ms >= 1),
    CONSTRAINT job_keep_range CHECK (keep_ms IS NULL OR keep_ms >= 0),
    CONSTRAINT job_kept_from_its_end CHECK (
        (keep_until IS NOT NULL) = (keep_ms IS NOT NULL AND finalized_at IS NOT NULL)
    ),
    CONSTRAINT job_kept_is_padded CHECK (
        keep_ms IS NULL OR request IS NULL OR pad IS NOT NULL
    )
) STRICT
"""

OLD_JOB = """
CREATE TABLE job_old (
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
"""

NEW_CHUNK = """
CREATE TABLE chunk_new (
    job TEXT NOT NULL,
    number INTEGER NOT NULL,
    first_event INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    choice INTEGER NOT NULL,
    first_token INTEGER NOT NULL,
    token_count INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    pad BLOB,
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
"""

OLD_CHUNK = """
CREATE TABLE chunk_old (
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
"""

INDEXES = (
    "CREATE INDEX job_claim ON job (model, class_rank, priority DESC, available_at, id)"
    " WHERE state = 'available'",
    "CREATE INDEX job_deadline ON job (deadline_at) WHERE finalized_at IS NULL",
    "CREATE INDEX job_due ON job (scheduled_at) WHERE state IN ('scheduled', 'retryable')",
    "CREATE INDEX job_tenant ON job (tenant, id)",
)
NEW_INDEXES = (
    "CREATE INDEX job_finalized ON job (finalized_at)"
    " WHERE finalized_at IS NOT NULL AND keep_until IS NULL",
    "CREATE INDEX job_kept ON job (keep_until) WHERE keep_until IS NOT NULL",
)
OLD_INDEXES = ("CREATE INDEX job_finalized ON job (finalized_at) WHERE finalized_at IS NOT NULL",)

TRIGGER = """
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
"""

IDEMPOTENCY = """
CREATE TABLE idempotency (
    tenant TEXT NOT NULL,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    "key" TEXT NOT NULL,
    digest TEXT NOT NULL,
    job TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    CONSTRAINT idempotency_key PRIMARY KEY (tenant, method, path, "key"),
    CONSTRAINT idempotency_expires_later CHECK (expires_at > created_at),
    CONSTRAINT idempotency_job_reference FOREIGN KEY(job) REFERENCES job (id) ON DELETE CASCADE
) WITHOUT ROWID, STRICT
"""
DRAIN = """
CREATE TABLE drain (
    id TEXT NOT NULL,
    mode TEXT NOT NULL,
    scope TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    timeout_ms INTEGER NOT NULL,
    in_flight INTEGER NOT NULL,
    finished INTEGER DEFAULT 0 NOT NULL,
    given_back INTEGER DEFAULT 0 NOT NULL,
    cancelled INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT drain_key PRIMARY KEY (id),
    CONSTRAINT drain_mode_known CHECK (mode IN ('finish', 'checkpoint', 'cancel')),
    CONSTRAINT drain_state_known CHECK (
        state IN ('running', 'completed', 'failed', 'cancelled')
    ),
    CONSTRAINT drain_ended_iff_not_running CHECK ((ended_at IS NULL) = (state = 'running')),
    CONSTRAINT drain_counts_range CHECK (
        timeout_ms >= 0
        AND finished >= 0
        AND given_back >= 0
        AND cancelled >= 0
        AND finished + given_back + cancelled <= in_flight
    ),
    CONSTRAINT drain_completed_adds_up CHECK (
        state <> 'completed' OR finished + given_back + cancelled = in_flight
    )
) STRICT
"""
NEW_TABLES = (
    IDEMPOTENCY,
    "CREATE INDEX idempotency_expires_at ON idempotency (expires_at)",
    "CREATE INDEX idempotency_job ON idempotency (job)",
    DRAIN,
    "CREATE INDEX drain_running ON drain (id) WHERE state = 'running'",
)


def upgrade() -> None:
    _replace("job", "job_new", NEW_JOB, JOB_COLUMNS)
    _replace("chunk", "chunk_new", NEW_CHUNK, CHUNK_COLUMNS)
    for statement in (*INDEXES, *NEW_INDEXES, TRIGGER, *NEW_TABLES):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE drain")
    op.execute("DROP TABLE idempotency")
    _replace("job", "job_old", OLD_JOB, JOB_COLUMNS)
    _replace("chunk", "chunk_old", OLD_CHUNK, CHUNK_COLUMNS)
    for statement in (*INDEXES, *OLD_INDEXES, TRIGGER):
        op.execute(statement)


def _replace(table: str, copy: str, create: str, columns: str) -> None:
    """The table with its new columns empty. The copy is renamed, not the original, so no reference
    to the table is rewritten. Indexes and triggers go with the original."""
    op.execute(create)
    op.execute(f"INSERT INTO {copy} ({columns}) SELECT {columns} FROM {table}")  # noqa: S608
    op.execute(f"DROP TABLE {table}")
    op.execute(f"ALTER TABLE {copy} RENAME TO {table}")
