"""I3 and I6 for generations: each that is over has one receipt, which says what the store holds."""

import sqlite3
from typing import Final

from app.storage.verify.violation import Rule, Violation, broken

_ONCE: Final = (
    Rule(
        "is over, but has no receipt",
        "SELECT id FROM generation WHERE state IN ('lost', 'gone')"
        " AND id NOT IN (SELECT generation FROM receipt)",
    ),
    # The receipt comes before the end of the process, which it must not be told of without one.
    Rule(
        "has a receipt, but is {}",
        "SELECT generation, state FROM receipt JOIN generation AS of ON of.id = generation"
        " WHERE state NOT IN ('stopping', 'lost', 'gone')",
    ),
    Rule(
        "has {} receipts that count",
        "SELECT subject, count(*) FROM report WHERE kind = 'generation' AND tombstone = 0"
        " GROUP BY subject HAVING count(*) > 1",
    ),
    Rule(
        "has a receipt of revision {} in the feed, but revision {} stands",
        "SELECT subject, report.revision, coalesce(receipt.revision, 'none') FROM report"
        " LEFT JOIN receipt ON generation = subject"
        " WHERE kind = 'generation' AND tombstone = 0"
        " AND report.revision IS NOT receipt.revision",
    ),
    Rule(
        "has a receipt of revision {} that the feed does not show",
        "SELECT generation, revision FROM receipt WHERE (SELECT pruned FROM feed) = 0"
        " AND generation NOT IN"
        " (SELECT subject FROM report WHERE kind = 'generation' AND tombstone = 0)",
    ),
)

_TOTALS: Final = "jobs, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens"

_COUNTS: Final = (
    Rule(
        "its receipt says other totals than it has",
        f"SELECT generation FROM receipt WHERE rank <> 2 AND ({_TOTALS}) <>"  # noqa: S608
        f" (SELECT {_TOTALS} FROM generation WHERE generation.id = generation)",
    ),
    Rule(
        "its receipt says more than it has",
        "SELECT generation FROM receipt JOIN generation AS of ON of.id = generation"
        " WHERE receipt.jobs > of.jobs OR receipt.prompt_tokens > of.prompt_tokens"
        " OR receipt.completion_tokens > of.completion_tokens",
    ),
)


def receipts(driver: sqlite3.Connection) -> list[Violation]:
    """Exactly one receipt for each generation that is over, with its totals."""
    return [*broken(driver, "I3", *_ONCE), *broken(driver, "I6", *_COUNTS)]
