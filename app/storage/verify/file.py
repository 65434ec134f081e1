"""The file itself: its pages, its constraints, its references, its triggers."""

import sqlite3
from collections.abc import Iterator

from app.storage.triggers import TRIGGERS
from app.storage.verify.violation import VIOLATIONS_MAX, Violation, first


def file(driver: sqlite3.Connection) -> list[Violation]:
    """SQLite finds nothing wrong, and every rule that it is to hold is there."""
    return first(_findings(driver))


def _findings(driver: sqlite3.Connection) -> Iterator[Violation]:
    for (verdict,) in driver.execute(f"PRAGMA quick_check({VIOLATIONS_MAX})"):
        if verdict != "ok":
            yield Violation("file", "mlxq.db", str(verdict))
    for table, row, parent, _ in driver.execute("PRAGMA foreign_key_check"):
        where = table if row is None else f"{table}, row {row}"
        yield Violation("file", where, f"names a row of {parent} that is not there")
    names = {name for (name,) in driver.execute("SELECT name FROM sqlite_schema")}
    for trigger in TRIGGERS.keys() - names:
        yield Violation("file", trigger, "the trigger is not there")
