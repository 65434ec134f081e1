"""The tables, as SQLAlchemy Core objects. ``migrations`` makes the same ones; a test compares.

All are STRICT, so a value of the wrong type is refused instead of stored. Rules that the domain
holds are held here again by CHECKs and triggers: two independent places must agree before a row
changes. Times are microseconds UTC (``encoding``). Wide columns come last in a row, since SQLite
reads a row from the front.
"""

from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy import and_ as sa_and

from app.domain.feed import KINDS, ConsumerState
from app.domain.gate import Gate
from app.domain.job import FINAL_STATES, Durability, JobClass, JobState, StopReason
from app.domain.worker_state import WorkerState

metadata: Final = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_name)s",
        "uq": "%(table_name)s_%(column_0_name)s_unique",
        "ck": "%(table_name)s_%(constraint_name)s",
        "fk": "%(table_name)s_%(column_0_name)s_reference",
        "pk": "%(table_name)s_key",
    }
)

DRAIN_MODES: Final = ("finish", "checkpoint", "cancel")
DRAIN_STATES: Final = ("running", "completed", "failed", "cancelled")
OUTCOMES: Final = ("finished", "stopped", "preempted", "failed", "refused", "lost")
PRIORITY_MAX: Final = 32_767


def _text(name: str, *, null: bool = False, default: str | None = None) -> Column[str]:
    return Column(name, Text, nullable=null, server_default=default)


def _number(name: str, *, null: bool = False, default: str | None = None) -> Column[int]:
    return Column(name, Integer, nullable=null, server_default=text(default) if default else None)


def _count(name: str) -> Column[int]:
    return _number(name, default="0")


def _blob(name: str, *, null: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=null)


def _one_of(column: str, values: tuple[str, ...]) -> str:
    listed = ", ".join(f"'{value}'" for value in values)
    return f"{column} IN ({listed})"


_FINAL: Final = _one_of("state", tuple(s.value for s in JobState if s in FINAL_STATES))

job: Final = Table(
    "job",
    metadata,
    _text("id"),
    _text("kind"),
    _text("durability"),
    _text("class"),
    _number("class_rank"),
    _number("priority"),
    _text("surface"),
    _text("tenant"),
    _text("model"),
    _text("state"),
    _count("attempt"),
    _count("failures"),
    _number("max_attempts"),
    _count("losses"),
    _count("preemptions"),
    _count("held_deaths"),
    _count("held_alone"),
    _number("created_at"),
    _number("scheduled_at"),
    _number("available_at"),
    _number("claimed_at", null=True),
    _number("deadline_at"),
    _number("attempt_timeout_ms", null=True),
    _number("started_at", null=True),
    _number("finalized_at", null=True),
    # Kept so long after its end, and until then; NULL: as long as the setting says.
    _number("keep_ms", null=True),
    _number("keep_until", null=True),
    _text("stop_reason", null=True),
    _number("stop_requested_at", null=True),
    _text("retry_of", null=True),
    _text("parent_job", null=True),
    _number("render_version"),
    _number("seed"),
    _text("finish_reason", null=True),
    _text("failure", null=True),
    _count("prompt_tokens"),
    _count("cached_tokens"),
    _count("completion_tokens"),
    _count("reasoning_tokens"),
    _count("events"),
    _text("prompt_digest", null=True),
    _text("fingerprint", null=True),
    _text("tags", default="{}"),
    _blob("settings"),
    _number("request_checksum", null=True),
    _blob("pad", null=True),  # see padding
    _blob("request", null=True),
    PrimaryKeyConstraint("id"),
    CheckConstraint(_one_of("state", tuple(JobState)), "state_known"),
    CheckConstraint(_one_of("durability", tuple(Durability)), "durability_known"),
    CheckConstraint(
        " OR ".join(f"(class = '{c}' AND class_rank = {c.rank})" for c in JobClass), "class_known"
    ),
    CheckConstraint(
        f"stop_reason IS NULL OR {_one_of('stop_reason', tuple(StopReason))}", "stop_reason_known"
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

Index(
    "job_claim",
    job.c.model,
    job.c.class_rank,
    job.c.priority.desc(),
    job.c.available_at,
    job.c.id,
    sqlite_where=job.c.state == "available",
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
    _number("number"),
    _text("generation"),
    _number("claimed_at"),
    _number("accepted_at", null=True),
    _number("ended_at", null=True),
    _count("prompt_tokens"),
    _count("cached_tokens"),
    _count("replayed_tokens"),
    _count("delivered_tokens"),
    _count("reasoning_tokens"),
    _count("prefill_tokens"),
    _text("choice_counts", default="{}"),
    _text("outcome", null=True),
    _text("failure", null=True),
    PrimaryKeyConstraint("job", "number"),
    CheckConstraint("number >= 1", "number_range"),
    CheckConstraint(f"outcome IS NULL OR {_one_of('outcome', OUTCOMES)}", "outcome_known"),
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
    _number("number"),
    _number("first_event"),
    _number("last_event"),
    _number("attempt"),
    _number("choice"),
    _number("first_token"),
    _number("token_count"),
    _number("checksum"),
    _blob("pad", null=True),  # see padding
    _blob("tokens"),
    _blob("logprobs"),
    _blob("parts"),
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
    _text("id"),
    _text("model"),
    _text("state"),
    _text("gate", default="loading"),
    _number("pid", null=True),
    _number("pid_started", null=True),
    _count("last_seq"),
    _number("parent_epoch"),
    _count("prompt_tokens"),
    _count("cached_tokens"),
    _count("completion_tokens"),
    _count("reasoning_tokens"),
    _count("jobs"),
    _number("created_at"),
    _number("ready_at", null=True),
    _number("ended_at", null=True),
    _number("exit_code", null=True),
    _number("exit_signal", null=True),
    _text("exit_reason", null=True),
    _text("fingerprint", null=True),
    _text("log_path"),
    PrimaryKeyConstraint("id"),
    CheckConstraint(_one_of("state", tuple(WorkerState)), "state_known"),
    CheckConstraint(_one_of("gate", tuple(Gate)), "gate_known"),
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

# AUTOINCREMENT: a number is never used twice, also after the row is gone.
command: Final = Table(
    "command",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("generation", Text, ForeignKey("generation.id", ondelete="CASCADE"), nullable=False),
    Column("job", Text, ForeignKey("job.id", ondelete="CASCADE"), nullable=True),
    _number("attempt", null=True),
    _text("kind"),
    _number("created_at"),
    _blob("params"),
    CheckConstraint("id >= 1", "id_range"),
    CheckConstraint("(job IS NULL) = (attempt IS NULL)", "attempt_iff_job"),
    sqlite_strict=True,
    sqlite_autoincrement=True,
)
Index("command_generation", command.c.generation, command.c.id)
Index("command_job", command.c.job, command.c.attempt)

report: Final = Table(
    "report",
    metadata,
    _text("id"),
    _number("revision"),
    _number("seq"),
    _text("kind"),
    _text("subject"),
    _count("tombstone"),
    _count("rank"),
    _text("outcome"),
    _text("reason", null=True),
    _number("complete"),
    _number("created_at"),
    _number("checksum"),
    _blob("payload"),
    PrimaryKeyConstraint("id", "revision"),
    UniqueConstraint("seq"),
    CheckConstraint(_one_of("kind", KINDS), "kind_known"),
    CheckConstraint("revision = 1 OR (kind = 'generation' AND revision > 1)", "revision_once"),
    CheckConstraint("tombstone = 0 OR kind = 'generation'", "tombstone_range"),
    CheckConstraint("tombstone IN (0, 1) AND complete IN (0, 1)", "flags"),
    sqlite_strict=True,
)

# Written with its job and deleted with it: there is never one without the other.
idempotency: Final = Table(
    "idempotency",
    metadata,
    _text("tenant"),
    _text("method"),
    _text("path"),
    _text("key"),
    _text("digest"),
    Column("job", Text, ForeignKey("job.id", ondelete="CASCADE"), nullable=False),
    _number("created_at"),
    _number("expires_at"),
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
    _text("id"),
    _text("mode"),
    _text("scope"),
    _text("state"),
    _text("reason", null=True),
    _number("started_at"),
    _number("ended_at", null=True),
    _number("timeout_ms"),
    _number("in_flight"),
    _count("finished"),
    _count("given_back"),
    _count("cancelled"),
    PrimaryKeyConstraint("id"),
    CheckConstraint(_one_of("mode", DRAIN_MODES), "mode_known"),
    CheckConstraint(_one_of("state", DRAIN_STATES), "state_known"),
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
    _number("id"),
    _count("last"),
    # The last place that was deleted, and the size of the payloads that are kept.
    _count("pruned"),
    _count("bytes"),
    PrimaryKeyConstraint("id"),
    CheckConstraint("id = 1", "one_row"),
    CheckConstraint("pruned >= 0 AND last >= pruned AND bytes >= 0", "numbers_range"),
    sqlite_strict=True,
)

# What the world was last told of a generation, and what it has acknowledged of that.
receipt: Final = Table(
    "receipt",
    metadata,
    Column("generation", Text, ForeignKey("generation.id", ondelete="CASCADE"), nullable=False),
    _text("id"),
    _number("revision"),
    _number("rank"),
    _number("jobs"),
    _number("prompt_tokens"),
    _number("cached_tokens"),
    _number("completion_tokens"),
    _number("reasoning_tokens"),
    _count("acked_revision"),
    _number("acked_at", null=True),
    PrimaryKeyConstraint("generation"),
    UniqueConstraint("id"),
    CheckConstraint("rank BETWEEN 1 AND 3", "rank_known"),
    CheckConstraint("revision >= 1 AND acked_revision BETWEEN 0 AND revision", "revisions_range"),
    CheckConstraint("(acked_at IS NULL) = (acked_revision = 0)", "acked_iff_at"),
    CheckConstraint(
        "jobs >= 0 AND prompt_tokens >= 0 AND cached_tokens >= 0"
        " AND completion_tokens >= 0 AND reasoning_tokens >= 0",
        "totals_range",
    ),
    sqlite_strict=True,
)

consumer: Final = Table(
    "consumer",
    metadata,
    _text("name"),
    _text("tenant", null=True),
    _text("state", default="live"),
    _text("parked_reason", null=True),
    _number("acked"),
    _number("passed"),
    _number("created_at"),
    _number("seen_at"),
    _number("include_attached"),
    _text("kinds"),
    _text("classes"),
    _text("tags"),
    PrimaryKeyConstraint("name"),
    CheckConstraint(_one_of("state", tuple(ConsumerState)), "state_known"),
    CheckConstraint("(parked_reason IS NOT NULL) = (state = 'parked')", "parked_for_a_reason"),
    CheckConstraint("acked >= 0 AND passed >= acked", "places_range"),
    CheckConstraint("include_attached IN (0, 1)", "flags"),
    CheckConstraint(
        "json_valid(kinds) AND json_valid(classes) AND json_valid(tags)", "selection_is_json"
    ),
    sqlite_strict=True,
)
Index("consumer_passed", consumer.c.passed, sqlite_where=consumer.c.state == "live")

meta: Final = Table(
    "meta",
    metadata,
    _text("key"),
    _text("value"),
    PrimaryKeyConstraint("key"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
