"""I6: tokens are counted once, and everywhere the same."""

import sqlite3
from typing import Final

from app.storage.verify.violation import Rule, Violation, broken

_TOTALS: Final = (
    "SELECT generation, sum(accepted_at IS NOT NULL) AS jobs, sum(prompt_tokens) AS prompt,"
    " sum(cached_tokens) AS cached, sum(delivered_tokens) AS completion,"
    " sum(reasoning_tokens) AS reasoning FROM attempt GROUP BY generation"
)

_JOURNALED: Final = (
    "SELECT job, attempt, choice, sum(token_count) AS tokens FROM chunk"
    " GROUP BY job, attempt, choice HAVING tokens > 0"
)
_COUNTED: Final = (
    "SELECT attempt.job, attempt.number, CAST(each.key AS INTEGER), each.value"
    " FROM attempt JOIN job ON job.id = attempt.job, json_each(attempt.choice_counts) AS each"
    " WHERE job.durability <> 'attached' AND each.value > 0"
)

_COUNTS: Final = (
    Rule(
        "attempt {} delivered {} tokens, but its choices {}",
        "SELECT job, number, delivered_tokens, choices FROM (SELECT job, number, delivered_tokens,"
        " (SELECT coalesce(sum(value), 0) FROM json_each(choice_counts)) AS choices FROM attempt)"
        " WHERE delivered_tokens <> choices",
    ),
    Rule(
        "attempt {} of choice {} has {} tokens in the journal that it does not count",
        f"SELECT * FROM ({_JOURNALED} EXCEPT {_COUNTED})",  # noqa: S608 - our own constants
    ),
    Rule(
        "attempt {} of choice {} counts {} tokens that are not in the journal",
        f"SELECT * FROM ({_COUNTED} EXCEPT {_JOURNALED})",  # noqa: S608
    ),
    Rule(
        "counts {} prompt tokens, {} cached; its first accepted attempt {}, {}",
        "SELECT job.id, job.prompt_tokens, job.cached_tokens, first.prompt_tokens,"
        " first.cached_tokens FROM job JOIN attempt AS first ON first.job = job.id"
        " AND first.number = (SELECT min(number) FROM attempt"
        " WHERE attempt.job = job.id AND accepted_at IS NOT NULL)"
        " WHERE job.prompt_tokens <> first.prompt_tokens"
        " OR job.cached_tokens <> first.cached_tokens",
    ),
    Rule(
        "counts {} prompt tokens, but no attempt was accepted",
        "SELECT id, prompt_tokens FROM job WHERE prompt_tokens + cached_tokens > 0"
        " AND NOT EXISTS (SELECT 1 FROM attempt"
        " WHERE attempt.job = job.id AND accepted_at IS NOT NULL)",
    ),
    Rule(
        "counts {} completion tokens, {} of reasoning; its attempts delivered {}, {}",
        "SELECT job.id, job.completion_tokens, job.reasoning_tokens,"
        " coalesce(sum(delivered_tokens), 0) AS delivered,"
        " coalesce(sum(attempt.reasoning_tokens), 0) AS reasoned"
        " FROM job LEFT JOIN attempt ON attempt.job = job.id"
        " WHERE job.finalized_at IS NOT NULL GROUP BY job.id"
        " HAVING job.completion_tokens <> delivered OR job.reasoning_tokens <> reasoned",
    ),
    # Retention takes attempts away, and never the totals they are part of.
    Rule(
        "has {} jobs, {} tokens in all, but its attempts {}, {}",
        "SELECT id, generation.jobs, prompt_tokens + cached_tokens + completion_tokens"  # noqa: S608
        " + reasoning_tokens, coalesce(of.jobs, 0),"
        " coalesce(prompt + cached + completion + reasoning, 0)"
        f" FROM generation LEFT JOIN ({_TOTALS}) AS of ON of.generation = id"
        " WHERE coalesce(of.jobs, 0) > generation.jobs"
        " OR coalesce(prompt > prompt_tokens OR cached > cached_tokens"
        " OR completion > completion_tokens OR reasoning > reasoning_tokens, 0)"
        " OR (coalesce(of.jobs, 0) = generation.jobs AND (coalesce(prompt, 0),"
        " coalesce(cached, 0), coalesce(completion, 0), coalesce(reasoning, 0)) <>"
        " (prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens))",
    ),
)


def tokens(driver: sqlite3.Connection) -> list[Violation]:
    """I6: usage is what was newly delivered, summed over attempts, jobs and generations alike."""
    return broken(driver, "I6", *_COUNTS)
