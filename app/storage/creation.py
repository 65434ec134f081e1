"""The latest schema in an empty file, without the steps that led to it.

What the migrations would come to: a test compares every object and every row. The tables are made
from their own text, ``tables.sql``, which spares the first start alembic and SQLAlchemy: together
they take as long as all the rest of the start, and more memory than the parent's whole cache of the
store.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import migrations
from app.storage.driver import Driver
from app.storage.triggers import TRIGGERS

TABLES: Final = Path(__file__).with_name("tables.sql")
"""``tables`` as statements, made by ``tables_sql``."""

_VERSION: Final = (
    "CREATE TABLE IF NOT EXISTS alembic_version (version_num VARCHAR(32) NOT NULL,"
    " CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))",
    "DELETE FROM alembic_version",
    f"INSERT INTO alembic_version (version_num) VALUES ('{migrations.HEAD}')",  # noqa: S608
)
_ROWS: Final = ("INSERT INTO feed (id, last, pruned, bytes) VALUES (1, 0, 0, 0)",)


def create(driver: Driver) -> None:
    """Make every table, index and trigger, and the rows that are there from the start, inside the
    caller's transaction."""
    for statement in _statements():
        driver.execute(statement)


def _statements() -> Iterator[str]:
    yield from TABLES.read_text().split(";\n")[:-1]
    yield from TRIGGERS.values()
    yield from _ROWS
    yield from _VERSION
