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
    Rule(
        "counts {} as deleted, and the first report is at {}",
        "SELECT 'feed', pruned, (SELECT min(seq) FROM report) FROM feed"
        " WHERE pruned + 1 <> (SELECT min(seq) FROM report)",
    ),
    Rule(
        "counts {} bytes, and the reports have {}",
        "SELECT 'feed', bytes, size FROM feed,"
        " (SELECT coalesce(sum(length(payload)), 0) AS size FROM report) WHERE bytes <> size",
    ),
    Rule(
        "{} has acknowledged up to {}, and the feed ends at {}",
        "SELECT name, name, acked, last FROM consumer, feed WHERE acked > last",
    ),
    Rule(
        "{} is live, and what it has not read is deleted up to {}",
        "SELECT name, name, pruned FROM consumer, feed WHERE state = 'live' AND passed < pruned",
    ),
)


def feed(driver: sqlite3.Connection) -> list[Violation]:
    """Places run without a gap or a double up to the counter."""
    return broken(driver, "feed", *_PLACES)
