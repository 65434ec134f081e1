"""The text of ``tables.sql``: ``python -m app.storage.tables_sql > app/storage/tables.sql``.

It is written down since making it takes SQLAlchemy, which a server loads for a migration only.
"""

import sys
from collections.abc import Iterator

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from app.storage.tables import metadata


def tables_sql() -> str:
    """Every table and index, each statement with a semicolon at its end."""
    return "".join(f"{statement};\n" for statement in _statements())


def _statements() -> Iterator[str]:
    dialect = sqlite.dialect()
    for table in metadata.sorted_tables:
        yield _tidy(str(CreateTable(table).compile(dialect=dialect)))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            yield _tidy(str(CreateIndex(index).compile(dialect=dialect)))


def _tidy(statement: str) -> str:
    lines = statement.strip().replace("\t", "    ").splitlines()
    return "\n".join(line.rstrip() for line in lines)


if __name__ == "__main__":
    sys.stdout.write(tables_sql())
