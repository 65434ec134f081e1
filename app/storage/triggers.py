"""The rules that a CHECK cannot hold, as triggers by name. ``migrations`` makes the same ones."""

from typing import Final

TRIGGERS: Final = {
    "job_final_is_final": """
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
    "attempt_end_is_final": """
CREATE TRIGGER attempt_end_is_final
BEFORE UPDATE ON attempt
WHEN OLD.outcome IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'an attempt ends once');
END
""",
    # A place in the feed is negative only inside the transaction that inserts the report.
    "report_is_immutable": """
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
    "dependency_outcome_is_final": """
CREATE TRIGGER dependency_outcome_is_final
BEFORE UPDATE ON dependency
WHEN OLD.outcome IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a predecessor ends once');
END
""",
    "receipt_sealed_is_final": """
CREATE TRIGGER receipt_sealed_is_final
BEFORE UPDATE OF
    revision, rank, jobs, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens
ON receipt
WHEN OLD.rank = 3
BEGIN
    SELECT RAISE(ABORT, 'a sealed receipt never changes');
END
""",
    "webhook_event_is_immutable": """
CREATE TRIGGER webhook_event_is_immutable
BEFORE UPDATE ON webhook_event
BEGIN
    SELECT RAISE(ABORT, 'an event never changes');
END
""",
}
