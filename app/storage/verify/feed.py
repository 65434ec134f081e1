"""The feed: every report has its place, and there is no gap between them."""

import sqlite3
from typing import Final

from app.storage.verify.violation import Rule, Violation, broken

_PLACES: Final = (
    Rule("has no counter", "SELECT 'feed' WHERE NOT EXISTS (SELECT 1 FROM feed)"),
    Rule("stands at place {}", "SELECT subject, seq FROM report WHERE seq < 1"),
    Rule(
        "share place {}",
        "SELECT group_concat(subject, ' and '), seq FROM report GROUP BY seq HAVING count(*) > 1",
    ),
    Rule(
        "stands at place {}, and the one before it is at {}",
        "SELECT subject, seq, before FROM"
        " (SELECT subject, seq, lag(seq) OVER (ORDER BY seq) AS before FROM report)"
        " WHERE seq > before + 1",
    ),
    # What was deleted of old stood at the front: the last place is that of the last report.
    Rule(
        "counts to {}, and the last report is at {}",
        "SELECT 'feed', last, (SELECT max(seq) FROM report) FROM feed"
        " WHERE last <> (SELECT max(seq) FROM report)",
    ),
)


def feed(driver: sqlite3.Connection) -> list[Violation]:
    """Places run without a gap or a double up to the counter."""
    return broken(driver, "feed", *_PLACES)
