"""The outbox towards workers: every command can still be answered, and means something.

``RunJob`` stands in its attempt, all others among the commands.
"""

import sqlite3
from typing import Final

from app.storage.verify.violation import Rule, Violation, broken

_OUTBOX: Final = (
    Rule(
        "is for {}, which {}",
        "SELECT 'command ' || command.id, command.generation,"
        " coalesce('is ' || generation.state, 'never was')"
        " FROM command LEFT JOIN generation ON generation.id = command.generation"
        " WHERE coalesce(generation.state IN ('lost', 'gone'), 1)",
    ),
    Rule(
        "is about attempt {} of {}, which is not open on {}",
        "SELECT 'command ' || id, attempt, job, generation FROM command"
        " WHERE job IS NOT NULL AND NOT EXISTS (SELECT 1 FROM attempt"
        " WHERE attempt.job = command.job AND attempt.number = command.attempt"
        " AND attempt.generation = command.generation AND attempt.outcome IS NULL)",
    ),
    Rule(
        "has {} times {} for attempt {}",
        "SELECT job, count(*), kind, attempt FROM command WHERE job IS NOT NULL"
        " GROUP BY job, attempt, kind HAVING count(*) > 1",
    ),
    Rule(
        "waits in attempt {} for a command that nobody can send",
        "SELECT job, number FROM attempt"
        " WHERE outcome IS NULL AND accepted_at IS NULL AND command IS NULL",
    ),
    Rule(
        "is also the one of attempt {} of {}",
        "SELECT 'command ' || command.id, number, attempt.job"
        " FROM attempt JOIN command ON command.id = attempt.command",
    ),
)


def commands(driver: sqlite3.Connection) -> list[Violation]:
    """Each command belongs to a worker that may answer, and to an attempt that it runs."""
    return broken(driver, "commands", *_OUTBOX)
