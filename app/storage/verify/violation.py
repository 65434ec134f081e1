"""What a check finds, and how most of them look for it."""

import sqlite3
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

VIOLATIONS_MAX: Final = 100
"""Of one check: a store that is broken all over is told so, not listed in full."""

Row: TypeAlias = tuple[Any, ...]


class Violation(msgspec.Struct, frozen=True):
    """Something in the store that cannot be. ``subject`` is the id it is about."""

    invariant: str
    subject: str
    message: str


class Rule(NamedTuple):
    """A rule that one query proves: it finds what breaks it. The first column is the subject, the
    others fill the message's braces."""

    message: str
    sql: str


def broken(driver: sqlite3.Connection, invariant: str, *rules: Rule) -> list[Violation]:
    """What breaks these rules."""
    return first(
        Violation(invariant, str(row[0]), rule.message.format(*row[1:]))
        for rule in rules
        for row in driver.execute(f"{rule.sql} LIMIT {VIOLATIONS_MAX}")
    )


def first(violations: Iterable[Violation]) -> list[Violation]:
    """No more than the limit of them."""
    return list(islice(violations, VIOLATIONS_MAX))
