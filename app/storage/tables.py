"""The tables, as SQLAlchemy Core objects. ``migrations`` makes the same ones; a test compares.

Those of ``feed_tables``, ``waiting_tables`` and ``webhook_tables`` are here too, so that
``metadata`` is whole for whoever imports this. All are STRICT, so a value of the wrong type is
refused instead of stored. Rules that the domain holds are held here again by CHECKs and triggers:
two independent places must agree before a row changes. Times are microseconds UTC (``encoding``).
Wide columns come last in a row, since SQLite reads a row from the front.
"""

from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy import and_ as sa_and

from app.domain.feed import KINDS
from app.domain.gate import Gate
from app.domain.job import FINAL_STATES, Durability, JobClass, JobState, StopReason
from app.domain.worker_state import WorkerState
from app.storage.columns import blob, count, metadata, number, one_of, text
from app.storage.feed_tables import consumer, receipt
from app.storage.waiting_tables import dependency, firing, schedule
from app.storage.webhook_tables import delivery, webhook_endpoint, webhook_event

__all__ = [
    "attempt",
    "chunk",
    "command",
    "consumer",
    "delivery",
    "dependency",
    "drain",
    "feed",
    "firing",
    "generation",
    "idempotency",
    "job",
    "meta",
    "metadata",
    "receipt",
    "report",
    "schedule",
    "webhook_endpoint",
    "webhook_event",
]

DRAIN_MODES: Final = ("finish", "checkpoint", "cancel")
DRAIN_STATES: Final = ("running", "completed", "failed", "cancelled")
OUTCOMES: Final = ("finished", "stopped", "preempted", "failed", "refused", "lost")
PRIORITY_MAX: Final = 32_767


_FINAL: Final = one_of("state", tuple(s.value for s in JobState if s in FINAL_STATES))

job: Final = Table(
    "job",
    metadata,
    text("id"),
    text("kind"),
    text("durability"),
    text("class"),
    number("class_rank"),
    number("priority"),
    text("surface"),
    text("tenant"),
    text("model"),
    text("state"),
    count("attempt"),
    count("failures"),
    number("max_attempts"),
    count("losses"),
    count("preemptions"),
    count("held_deaths"),
    count("held_alone"),
    number("created_at"),
    number("scheduled_at"),
    number("available_at"),
    number("claimed_at", null=True),
    number("deadline_at"),
    number("attempt_timeout_ms", null=True),
    number("started_at", null=True),
    number("finalized_at", null=True),
    # Kept so long after its end, and until then; NULL: as long as the setting says.
    number("keep_ms", null=True),
    number("keep_until", null=True),
    text("stop_reason", null=True),
    number("stop_requested_at", null=True),
    text("retry_of", null=True),
    text("parent_job", null=True),
    number("render_version"),
    number("seed"),
    text("finish_reason", null=True),
    text("failure", null=True),
    count("prompt_tokens"),
    count("cached_tokens"),
    count("completion_tokens"),
    count("reasoning_tokens"),
    count("events"),
    text("prompt_digest", null=True),
    text("fingerprint", null=True),
    text("tags", default="{}"),
    blob("settings"),
    number("request_checksum", null=True),
    blob("pad", null=True),  # see padding
    blob("request", null=True),
    PrimaryKeyConstraint("id"),
    CheckConstraint(one_of("state", tuple(JobState)), "state_known"),
    CheckConstraint(one_of("durability", tuple(Durability)), "durability_known"),
    CheckConstraint(
        " OR ".join(f"(class = '{c}' AND class_rank = {c.rank})" for c in JobClass), "class_known"
    ),
    CheckConstraint(
        f"stop_reason IS NULL OR {one_of('stop_reason', tuple(StopReason))}", "stop_reason_known"
    ),
    CheckConstraint(f"priority BETWEEN -{PRIORITY_MAX} AND {PRIORITY_MAX}", "priority_range"),
    CheckConstraint(f"(finalized_at IS NOT NULL) = ({_FINAL})", "finalized_iff_final"),
    CheckConstraint("(failure IS NOT NULL) = (state = 'failed')", "failure_iff_failed"),
    CheckConstraint(f"finish_reason IS NULL OR {_FINAL}", "finish_reason_only_final"),
    CheckConstraint("max_attempts >= 1 AND failures BETWEEN 0 AND max_attempts", "failures_range"),
    CheckConstraint("attempt >= 0 AND (state <> 'running' OR attempt >= 1)", "attempt_range"),
    CheckConstraint("started_at IS NULL OR attempt >= 1", "started_by_an_attempt"),
    CheckConstraint(
        "losses >= 0 AND preemptions >= 0 AND held_deaths >= 0 AND held_alone IN (0, 1)",
        "counts_range",
    ),
    CheckConstraint(
        "prompt_tokens >= 0 AND cached_tokens >= 0"
        " AND completion_tokens >= 0 AND reasoning_tokens >= 0",
        "usage_range",
    ),
    CheckConstraint("events >= 0", "events_range"),
    CheckConstraint("(durability = 'attached') = (request IS NULL)", "request_iff_not_attached"),
    CheckConstraint("(request IS NULL) = (request_checksum IS NULL)", "request_has_checksum"),
    CheckConstraint("json_valid(tags)", "tags_are_json"),
    CheckConstraint("attempt_timeout_ms IS NULL OR attempt_timeout_ms >= 1", "timeout_range"),
    CheckConstraint("keep_ms IS NULL OR keep_ms >= 0", "keep_range"),
    CheckConstraint(
        "(keep_until IS NOT NULL) = (keep_ms IS NOT NULL AND finalized_at IS NOT NULL)",
        "kept_from_its_end",
    ),
    CheckConstraint("keep_ms IS NULL OR request IS NULL OR pad IS NOT NULL", "kept_is_padded"),
    sqlite_strict=True,
)

Index("job_due", job.c.scheduled_at, sqlite_where=job.c.state.in_(["scheduled", "retryable"]))
Index("job_deadline", job.c.deadline_at, sqlite_where=job.c.finalized_at.is_(None))
# What retention deletes: by the setting, and by the job's own time.
Index(
    "job_finalized",
    job.c.finalized_at,
    sqlite_where=sa_and(job.c.finalized_at.is_not(None), job.c.keep_until.is_(None)),
)
Index("job_kept", job.c.keep_until, sqlite_where=job.c.keep_until.is_not(None))
Index("job_tenant", job.c.tenant, job.c.id)

attempt: Final = Table(
    "attempt",
    metadata,
    Column("job", Text, ForeignKey("job.id", ondelete="CASCADE"), nullable=False),
    number("number"),
    text("generation"),
    number("claimed_at"),
    number("accepted_at", null=True),
    number("ended_at", null=True),
    count("prompt_tokens"),
    count("cached_tokens"),
    count("replayed_tokens"),
    count("delivered_tokens"),
    count("reasoning_tokens"),
    count("prefill_tokens"),
    text("choice_counts", default="{}"),
    text("outcome", null=True),
    text("failure", null=True),
    number("command", null=True),
    PrimaryKeyConstraint("job", "number"),
    CheckConstraint("number >= 1", "number_range"),
    CheckConstraint(f"outcome IS NULL OR {one_of('outcome', OUTCOMES)}", "outcome_known"),
    CheckConstraint("(outcome IS NULL) = (ended_at IS NULL)", "ended_iff_outcome"),
    CheckConstraint(
        "prompt_tokens >= 0 AND cached_tokens >= 0 AND replayed_tokens >= 0"
        " AND delivered_tokens >= 0 AND reasoning_tokens >= 0 AND prefill_tokens >= 0",
        "tokens_range",
    ),
    CheckConstraint("json_valid(choice_counts)", "choice_counts_are_json"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
# Running jobs of a generation are its attempts without an outcome.
Index("attempt_open", attempt.c.generation, sqlite_where=attempt.c.outcome.is_(None))

# Clustered by job: a follower reads one job's rows in order, and a frame adds to one tree only.
chunk: Final = Table(
    "chunk",
    metadata,
    Column("job", Text, ForeignKey("job.id", ondelete="CASCADE"), nullable=False),
    number("number"),
    number("first_event"),
    number("last_event"),
    number("attempt"),
    number("choice"),
    number("first_token"),
    number("token_count"),
    number("checksum"),
    blob("pad", null=True),  # see padding
    blob("tokens"),
    blob("logprobs"),
    blob("parts"),
    PrimaryKeyConstraint("job", "number"),
    CheckConstraint("number >= 0", "number_range"),
    CheckConstraint("first_event >= 0 AND last_event >= first_event - 1", "events_range"),
    CheckConstraint("attempt >= 1 AND choice >= 0", "origin_range"),
    CheckConstraint("first_token >= 0 AND token_count >= 0", "tokens_range"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

generation: Final = Table(
    "generation",
    metadata,
    text("id"),
    text("model"),
    text("state"),
    text("gate", default="loading"),
    number("pid", null=True),
    number("pid_started", null=True),
    count("last_seq"),
    number("parent_epoch"),
    count("prompt_tokens"),
    count("cached_tokens"),
    count("completion_tokens"),
    count("reasoning_tokens"),
    count("jobs"),
    number("created_at"),
    number("ready_at", null=True),
    number("ended_at", null=True),
    number("exit_code", null=True),
    number("exit_signal", null=True),
    text("exit_reason", null=True),
    text("fingerprint", null=True),
    text("log_path"),
    PrimaryKeyConstraint("id"),
    CheckConstraint(one_of("state", tuple(WorkerState)), "state_known"),
    CheckConstraint(one_of("gate", tuple(Gate)), "gate_known"),
    CheckConstraint("(ended_at IS NOT NULL) = (state IN ('lost', 'gone'))", "ended_iff_over"),
    CheckConstraint("last_seq >= 0 AND parent_epoch >= 1", "numbers_range"),
    CheckConstraint(
        "prompt_tokens >= 0 AND cached_tokens >= 0 AND completion_tokens >= 0"
        " AND reasoning_tokens >= 0 AND jobs >= 0",
        "totals_range",
    ),
    CheckConstraint("exit_code IS NULL OR exit_signal IS NULL", "exit_once"),
    sqlite_strict=True,
)
Index("generation_open", generation.c.id, sqlite_where=generation.c.state != "gone")

# What workers are asked beside running a job; that command's number stands in its attempt.
# AUTOINCREMENT: a number is never used twice, also after the row is gone.
command: Final = Table(
    "command",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("generation", Text, ForeignKey("generation.id", ondelete="CASCADE"), nullable=False),
    Column("job", Text, ForeignKey("job.id", ondelete="CASCADE"), nullable=True),
    number("attempt", null=True),
    text("kind"),
    number("created_at"),
    blob("params"),
    CheckConstraint("id >= 1", "id_range"),
    CheckConstraint("(job IS NULL) = (attempt IS NULL)", "attempt_iff_job"),
    sqlite_strict=True,
    sqlite_autoincrement=True,
)
Index("command_generation", command.c.generation, command.c.id)
Index("command_job", command.c.job, command.c.attempt)

# Clustered by place in the feed. An id follows from subject and kind, and looks like chance: as a
# key, each report would change a page of its own.
report: Final = Table(
    "report",
    metadata,
    text("id"),
    number("revision"),
    Column("seq", Integer, primary_key=True),
    text("kind"),
    text("subject"),
    count("tombstone"),
    count("rank"),
    text("outcome"),
    text("reason", null=True),
    number("complete"),
    number("created_at"),
    number("checksum"),
    blob("payload"),
    UniqueConstraint("subject", "kind", "revision", name="report_once"),
    CheckConstraint(one_of("kind", KINDS), "kind_known"),
    CheckConstraint("revision = 1 OR (kind = 'generation' AND revision > 1)", "revision_once"),
    CheckConstraint("tombstone = 0 OR kind = 'generation'", "tombstone_range"),
    CheckConstraint("tombstone IN (0, 1) AND complete IN (0, 1)", "flags"),
    sqlite_strict=True,
)

# Written with its job and deleted with it: there is never one without the other.
idempotency: Final = Table(
    "idempotency",
    metadata,
    text("tenant"),
    text("method"),
    text("path"),
    text("key"),
    text("digest"),
    Column("job", Text, ForeignKey("job.id", ondelete="CASCADE"), nullable=False),
    number("created_at"),
    number("expires_at"),
    PrimaryKeyConstraint("tenant", "method", "path", "key"),
    CheckConstraint("expires_at > created_at", "expires_later"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
Index("idempotency_expires_at", idempotency.c.expires_at)
Index("idempotency_job", idempotency.c.job)

drain: Final = Table(
    "drain",
    metadata,
    text("id"),
    text("mode"),
    text("scope"),
    text("state"),
    text("reason", null=True),
    number("started_at"),
    number("ended_at", null=True),
    number("timeout_ms"),
    number("in_flight"),
    count("finished"),
    count("given_back"),
    count("cancelled"),
    PrimaryKeyConstraint("id"),
    CheckConstraint(one_of("mode", DRAIN_MODES), "mode_known"),
    CheckConstraint(one_of("state", DRAIN_STATES), "state_known"),
    CheckConstraint("(ended_at IS NULL) = (state = 'running')", "ended_iff_not_running"),
    CheckConstraint(
        "timeout_ms >= 0 AND finished >= 0 AND given_back >= 0 AND cancelled >= 0"
        " AND finished + given_back + cancelled <= in_flight",
        "counts_range",
    ),
    CheckConstraint(
        "state <> 'completed' OR finished + given_back + cancelled = in_flight",
        "completed_adds_up",
    ),
    sqlite_strict=True,
)
Index("drain_running", drain.c.id, sqlite_where=drain.c.state == "running")

feed: Final = Table(
    "feed",
    metadata,
    number("id"),
    count("last"),
    # The last place that was deleted, and the size of the payloads that are kept.
    count("pruned"),
    count("bytes"),
    PrimaryKeyConstraint("id"),
    CheckConstraint("id = 1", "one_row"),
    CheckConstraint("pruned >= 0 AND last >= pruned AND bytes >= 0", "numbers_range"),
    sqlite_strict=True,
)

meta: Final = Table(
    "meta",
    metadata,
    text("key"),
    text("value"),
    PrimaryKeyConstraint("key"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
