"""What is read of a job and of its journal."""

from typing import Final

JOB: Final = """
SELECT id, kind, durability, class, priority, surface, tenant, model, state, attempt, failures,
    max_attempts, losses, preemptions, held_deaths, held_alone, created_at, scheduled_at,
    available_at, claimed_at, deadline_at, attempt_timeout_ms, started_at, finalized_at, keep_ms,
    stop_reason, stop_requested_at, retry_of, parent_job, render_version, seed, finish_reason,
    failure, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, events,
    prompt_digest, fingerprint, tags, settings,
    (SELECT json_group_array(json_array(predecessor, outcome, on_failure)) FROM dependency
        WHERE dependency.job = job.id) AS after,
    (SELECT schedule FROM firing WHERE firing.job = job.id) AS schedule
FROM job
"""
"""All but its request, and what other tables say of it. To be followed by which of them, and in
which order; so is ``CHUNKS``."""

CHUNKS: Final = """
SELECT job, number, first_event, last_event, attempt, choice, first_token, token_count, checksum,
    tokens, logprobs, parts
FROM chunk
"""
