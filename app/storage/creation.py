"""The latest schema in an empty file, without the steps that led to it.

What the migrations would come to, made from the same definitions: a test compares every object and
every row. It spares the first start alembic, which takes as long as all the rest of the start and
more memory than the parent's whole cache of the store.
"""

from collections.abc import Iterator
from typing import Final

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

import migrations
from app.storage.driver import Driver
from app.storage.tables import metadata
from app.storage.triggers import TRIGGERS

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
    dialect = sqlite.dialect()
    for table in metadata.sorted_tables:
        yield str(CreateTable(table).compile(dialect=dialect))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            yield str(CreateIndex(index).compile(dialect=dialect))
    yield from TRIGGERS.values()
    yield from _ROWS
    yield from _VERSION
