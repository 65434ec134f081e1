CREATE TABLE consumer (
    name TEXT NOT NULL,
    tenant TEXT,
    state TEXT DEFAULT 'live' NOT NULL,
    parked_reason TEXT,
    acked INTEGER NOT NULL,
    passed INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    include_attached INTEGER NOT NULL,
    kinds TEXT NOT NULL,
    classes TEXT NOT NULL,
    tags TEXT NOT NULL,
    CONSTRAINT consumer_key PRIMARY KEY (name),
    CONSTRAINT consumer_state_known CHECK (state IN ('live', 'parked')),
    CONSTRAINT consumer_parked_for_a_reason CHECK ((parked_reason IS NOT NULL) = (state = 'parked')),
    CONSTRAINT consumer_places_range CHECK (acked >= 0 AND passed >= acked),
    CONSTRAINT consumer_flags CHECK (include_attached IN (0, 1)),
    CONSTRAINT consumer_selection_is_json CHECK (json_valid(kinds) AND json_valid(classes) AND json_valid(tags))
)
 STRICT;
CREATE INDEX consumer_passed ON consumer (passed) WHERE state = 'live';
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
    CONSTRAINT drain_mode_known CHECK ((mode = 'finish' OR mode = 'checkpoint' OR mode = 'cancel')),
    CONSTRAINT drain_state_known CHECK ((state = 'running' OR state = 'completed' OR state = 'failed' OR state = 'cancelled')),
    CONSTRAINT drain_ended_iff_not_running CHECK ((ended_at IS NULL) = (state = 'running')),
    CONSTRAINT drain_counts_range CHECK (timeout_ms >= 0 AND finished >= 0 AND given_back >= 0 AND cancelled >= 0 AND finished + given_back + cancelled <= in_flight),
    CONSTRAINT drain_completed_adds_up CHECK (state <> 'completed' OR finished + given_back + cancelled = in_flight)
)
 STRICT;
CREATE INDEX drain_running ON drain (id) WHERE state = 'running';
CREATE TABLE feed (
    id INTEGER NOT NULL,
    last INTEGER DEFAULT 0 NOT NULL,
    pruned INTEGER DEFAULT 0 NOT NULL,
    bytes INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT feed_key PRIMARY KEY (id),
    CONSTRAINT feed_one_row CHECK (id = 1),
    CONSTRAINT feed_numbers_range CHECK (pruned >= 0 AND last >= pruned AND bytes >= 0)
)
 STRICT;
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
    CONSTRAINT generation_state_known CHECK ((state = 'starting' OR state = 'ready' OR state = 'stopping' OR state = 'lost' OR state = 'gone')),
    CONSTRAINT generation_gate_known CHECK ((gate = 'loading' OR gate = 'serving' OR gate = 'rebuilding' OR gate = 'stopping' OR gate = 'failed')),
    CONSTRAINT generation_ended_iff_over CHECK ((ended_at IS NOT NULL) = (state IN ('lost', 'gone'))),
    CONSTRAINT generation_numbers_range CHECK (last_seq >= 0 AND parent_epoch >= 1),
    CONSTRAINT generation_totals_range CHECK (prompt_tokens >= 0 AND cached_tokens >= 0 AND completion_tokens >= 0 AND reasoning_tokens >= 0 AND jobs >= 0),
    CONSTRAINT generation_exit_once CHECK (exit_code IS NULL OR exit_signal IS NULL)
)
 STRICT;
CREATE INDEX generation_open ON generation (id) WHERE state != 'gone';
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
    CONSTRAINT job_state_known CHECK ((state = 'scheduled' OR state = 'available' OR state = 'running' OR state = 'retryable' OR state = 'completed' OR state = 'failed' OR state = 'cancelled')),
    CONSTRAINT job_durability_known CHECK ((durability = 'attached' OR durability = 'stored' OR durability = 'durable')),
    CONSTRAINT job_class_known CHECK ((class = 'interactive' AND class_rank = 0) OR (class = 'background' AND class_rank = 1) OR (class = 'batch' AND class_rank = 2)),
    CONSTRAINT job_stop_reason_known CHECK (stop_reason IS NULL OR (stop_reason = 'cancel' OR stop_reason = 'deadline' OR stop_reason = 'parent_lost')),
    CONSTRAINT job_priority_range CHECK (priority BETWEEN -32767 AND 32767),
    CONSTRAINT job_finalized_iff_final CHECK ((finalized_at IS NOT NULL) = ((state = 'completed' OR state = 'failed' OR state = 'cancelled'))),
    CONSTRAINT job_failure_iff_failed CHECK ((failure IS NOT NULL) = (state = 'failed')),
    CONSTRAINT job_finish_reason_only_final CHECK (finish_reason IS NULL OR (state = 'completed' OR state = 'failed' OR state = 'cancelled')),
    CONSTRAINT job_failures_range CHECK (max_attempts >= 1 AND failures BETWEEN 0 AND max_attempts),
    CONSTRAINT job_attempt_range CHECK (attempt >= 0 AND (state <> 'running' OR attempt >= 1)),
    CONSTRAINT job_started_by_an_attempt CHECK (started_at IS NULL OR attempt >= 1),
    CONSTRAINT job_counts_range CHECK (losses >= 0 AND preemptions >= 0 AND held_deaths >= 0 AND held_alone IN (0, 1)),
    CONSTRAINT job_usage_range CHECK (prompt_tokens >= 0 AND cached_tokens >= 0 AND completion_tokens >= 0 AND reasoning_tokens >= 0),
    CONSTRAINT job_events_range CHECK (events >= 0),
    CONSTRAINT job_request_iff_not_attached CHECK ((durability = 'attached') = (request IS NULL)),
    CONSTRAINT job_request_has_checksum CHECK ((request IS NULL) = (request_checksum IS NULL)),
    CONSTRAINT job_tags_are_json CHECK (json_valid(tags)),
    CONSTRAINT job_timeout_range CHECK (attempt_timeout_ms IS NULL OR attempt_timeout_ms >= 1),
    CONSTRAINT job_keep_range CHECK (keep_ms IS NULL OR keep_ms >= 0),
    CONSTRAINT job_kept_from_its_end CHECK ((keep_until IS NOT NULL) = (keep_ms IS NOT NULL AND finalized_at IS NOT NULL)),
    CONSTRAINT job_kept_is_padded CHECK (keep_ms IS NULL OR request IS NULL OR pad IS NOT NULL)
)
 STRICT;
CREATE INDEX job_deadline ON job (deadline_at) WHERE finalized_at IS NULL;
CREATE INDEX job_due ON job (scheduled_at) WHERE state IN ('scheduled', 'retryable');
CREATE INDEX job_finalized ON job (finalized_at) WHERE finalized_at IS NOT NULL AND keep_until IS NULL;
CREATE INDEX job_kept ON job (keep_until) WHERE keep_until IS NOT NULL;
CREATE INDEX job_tenant ON job (tenant, id);
CREATE TABLE meta (
    "key" TEXT NOT NULL,
    value TEXT NOT NULL,
    CONSTRAINT meta_key PRIMARY KEY ("key")
)
 WITHOUT ROWID,
 STRICT;
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
    CONSTRAINT report_key PRIMARY KEY (seq),
    CONSTRAINT report_once UNIQUE (subject, kind, revision),
    CONSTRAINT report_kind_known CHECK ((kind = 'job' OR kind = 'generation' OR kind = 'drain')),
    CONSTRAINT report_revision_once CHECK (revision = 1 OR (kind = 'generation' AND revision > 1)),
    CONSTRAINT report_tombstone_range CHECK (tombstone = 0 OR kind = 'generation'),
    CONSTRAINT report_flags CHECK (tombstone IN (0, 1) AND complete IN (0, 1))
)
 STRICT;
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
    CONSTRAINT schedule_dues_go_on CHECK (next_due IS NULL OR last_due IS NULL OR next_due > last_due),
    CONSTRAINT schedule_fired_range CHECK (fired >= 0)
)
 STRICT;
CREATE TABLE webhook_endpoint (
    id TEXT NOT NULL,
    tenant TEXT,
    name TEXT NOT NULL,
    url TEXT NOT NULL,
    state TEXT DEFAULT 'enabled' NOT NULL,
    reason TEXT,
    event_types TEXT NOT NULL,
    secret TEXT NOT NULL,
    old_secret TEXT,
    old_secret_until INTEGER,
    since INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT webhook_endpoint_key PRIMARY KEY (id),
    CONSTRAINT webhook_endpoint_state_known CHECK (state IN ('enabled', 'disabled')),
    CONSTRAINT webhook_endpoint_disabled_for_a_reason CHECK ((reason IS NOT NULL) = (state = 'disabled')),
    CONSTRAINT webhook_endpoint_event_types_are_json CHECK (json_valid(event_types)),
    CONSTRAINT webhook_endpoint_old_secret_ends CHECK ((old_secret IS NULL) = (old_secret_until IS NULL)),
    CONSTRAINT webhook_endpoint_since_range CHECK (since >= 0)
)
 STRICT;
CREATE TABLE webhook_event (
    id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    type TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    body BLOB NOT NULL,
    CONSTRAINT webhook_event_key PRIMARY KEY (id),
    CONSTRAINT webhook_event_seq_range CHECK (seq >= 1)
)
 STRICT;
CREATE INDEX webhook_event_seq ON webhook_event (seq);
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
    command INTEGER,
    CONSTRAINT attempt_key PRIMARY KEY (job, number),
    CONSTRAINT attempt_number_range CHECK (number >= 1),
    CONSTRAINT attempt_outcome_known CHECK (outcome IS NULL OR (outcome = 'finished' OR outcome = 'stopped' OR outcome = 'preempted' OR outcome = 'failed' OR outcome = 'refused' OR outcome = 'lost')),
    CONSTRAINT attempt_ended_iff_outcome CHECK ((outcome IS NULL) = (ended_at IS NULL)),
    CONSTRAINT attempt_tokens_range CHECK (prompt_tokens >= 0 AND cached_tokens >= 0 AND replayed_tokens >= 0 AND delivered_tokens >= 0 AND reasoning_tokens >= 0 AND prefill_tokens >= 0),
    CONSTRAINT attempt_choice_counts_are_json CHECK (json_valid(choice_counts)),
    CONSTRAINT attempt_job_reference FOREIGN KEY(job) REFERENCES job (id) ON DELETE CASCADE
)
 WITHOUT ROWID,
 STRICT;
CREATE INDEX attempt_open ON attempt (generation) WHERE outcome IS NULL;
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
)
 WITHOUT ROWID,
 STRICT;
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
    CONSTRAINT command_generation_reference FOREIGN KEY(generation) REFERENCES generation (id) ON DELETE CASCADE,
    CONSTRAINT command_job_reference FOREIGN KEY(job) REFERENCES job (id) ON DELETE CASCADE
)
 STRICT;
CREATE INDEX command_generation ON command (generation, id);
CREATE INDEX command_job ON command (job, attempt);
CREATE TABLE delivery (
    endpoint TEXT NOT NULL,
    event TEXT NOT NULL,
    seq INTEGER NOT NULL,
    state TEXT NOT NULL,
    tries INTEGER DEFAULT 0 NOT NULL,
    first_at INTEGER NOT NULL,
    next_at INTEGER,
    ended_at INTEGER,
    log TEXT DEFAULT '[]' NOT NULL,
    CONSTRAINT delivery_key PRIMARY KEY (endpoint, event),
    CONSTRAINT delivery_state_known CHECK ((state = 'waiting' OR state = 'delivered' OR state = 'parked')),
    CONSTRAINT delivery_ended_iff_not_waiting CHECK ((ended_at IS NULL) = (state = 'waiting')),
    CONSTRAINT delivery_next_iff_waiting CHECK ((next_at IS NOT NULL) = (state = 'waiting')),
    CONSTRAINT delivery_numbers_range CHECK (seq >= 1 AND tries >= 0),
    CONSTRAINT delivery_log_is_json CHECK (json_valid(log)),
    CONSTRAINT delivery_endpoint_reference FOREIGN KEY(endpoint) REFERENCES webhook_endpoint (id) ON DELETE CASCADE,
    CONSTRAINT delivery_event_reference FOREIGN KEY(event) REFERENCES webhook_event (id)
)
 WITHOUT ROWID,
 STRICT;
CREATE INDEX delivery_event ON delivery (event);
CREATE INDEX delivery_parked ON delivery (ended_at) WHERE state = 'parked';
CREATE INDEX delivery_place ON delivery (endpoint, seq);
CREATE INDEX delivery_waiting ON delivery (endpoint) WHERE state = 'waiting';
CREATE TABLE dependency (
    job TEXT NOT NULL,
    predecessor TEXT NOT NULL,
    on_failure TEXT NOT NULL,
    outcome TEXT,
    CONSTRAINT dependency_key PRIMARY KEY (job, predecessor),
    CONSTRAINT dependency_on_failure_known CHECK (on_failure IN ('fail', 'run')),
    CONSTRAINT dependency_outcome_known CHECK (outcome IS NULL OR (outcome = 'completed' OR outcome = 'failed' OR outcome = 'cancelled')),
    CONSTRAINT dependency_not_of_itself CHECK (job <> predecessor),
    CONSTRAINT dependency_job_reference FOREIGN KEY(job) REFERENCES job (id) ON DELETE CASCADE
)
 WITHOUT ROWID,
 STRICT;
CREATE INDEX dependency_predecessor ON dependency (predecessor);
CREATE TABLE firing (
    schedule TEXT NOT NULL,
    due INTEGER NOT NULL,
    job TEXT NOT NULL,
    fired_at INTEGER NOT NULL,
    CONSTRAINT firing_key PRIMARY KEY (schedule, due),
    CONSTRAINT firing_job_unique UNIQUE (job),
    CONSTRAINT firing_job_reference FOREIGN KEY(job) REFERENCES job (id) ON DELETE CASCADE
)
 WITHOUT ROWID,
 STRICT;
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
)
 WITHOUT ROWID,
 STRICT;
CREATE INDEX idempotency_expires_at ON idempotency (expires_at);
CREATE INDEX idempotency_job ON idempotency (job);
CREATE TABLE receipt (
    generation TEXT NOT NULL,
    id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    acked_revision INTEGER DEFAULT 0 NOT NULL,
    acked_at INTEGER,
    CONSTRAINT receipt_key PRIMARY KEY (generation),
    CONSTRAINT receipt_id_unique UNIQUE (id),
    CONSTRAINT receipt_rank_known CHECK (rank BETWEEN 1 AND 3),
    CONSTRAINT receipt_revisions_range CHECK (revision >= 1 AND acked_revision BETWEEN 0 AND revision),
    CONSTRAINT receipt_acked_iff_at CHECK ((acked_at IS NULL) = (acked_revision = 0)),
    CONSTRAINT receipt_totals_range CHECK (jobs >= 0 AND prompt_tokens >= 0 AND cached_tokens >= 0 AND completion_tokens >= 0 AND reasoning_tokens >= 0),
    CONSTRAINT receipt_generation_reference FOREIGN KEY(generation) REFERENCES generation (id) ON DELETE CASCADE
)
 STRICT;
