"""CHECKs that name more than two values as comparisons.

SQLite makes a table of such a list each time it evaluates the CHECK, which cost more than all the
rest of an update of a job. The rules and the rows stay as they were.
"""

import re
from collections.abc import Callable

from alembic import op
from sqlalchemy import text

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

LIST = re.compile(r"\b(\w+)\s+IN\s+\(\s*('\w+'(?:\s*,\s*'\w+'){2,})\s*\)")
"""A column, and three or more values of it."""

CHAIN = re.compile(r"\((\w+) = '\w+'(?: OR \1 = '\w+'){2,}\)")

OBJECTS = "SELECT type, name, sql FROM sqlite_schema WHERE tbl_name = :table AND sql IS NOT NULL"


def upgrade() -> None:
    _rewrite(LIST, _chain)


def downgrade() -> None:
    _rewrite(CHAIN, _list)


def _chain(found: re.Match[str]) -> str:
    column, values = found[1], re.findall(r"'\w+'", found[2])
    return f"({' OR '.join(f'{column} = {value}' for value in values)})"


def _list(found: re.Match[str]) -> str:
    values = re.findall(r"'\w+'", found[0])
    return f"{found[1]} IN ({', '.join(values)})"


def _rewrite(pattern: re.Pattern[str], rewritten: Callable[[re.Match[str]], str]) -> None:
    tables = op.get_bind().execute(text("SELECT name, sql FROM sqlite_schema WHERE type = 'table'"))
    for name, sql in tables.all():
        changed = pattern.sub(rewritten, sql)
        if changed != sql:
            _replace(name, changed)


def _replace(table: str, create: str) -> None:
    """Make the table anew. The copy is renamed, not the original, so no reference to the table is
    rewritten. Indexes and triggers go with the original, and come again as they were."""
    objects = op.get_bind().execute(text(OBJECTS), {"table": table}).all()
    head = re.match(r'CREATE TABLE\s+"?\w+"?', create)
    assert head is not None, f"the table {table} was not made by CREATE TABLE"  # noqa: S101
    op.execute(_literal(f"CREATE TABLE {table}_new{create[head.end() :]}"))
    op.execute(f"INSERT INTO {table}_new SELECT * FROM {table}")  # noqa: S608 - a name of the schema
    op.execute(f"DROP TABLE {table}")
    op.execute(f"ALTER TABLE {table}_new RENAME TO {table}")
    for kind, _, sql in objects:
        if kind != "table":
            op.execute(_literal(sql))


def _literal(sql: str) -> str:
    """Nothing in it is a parameter."""
    return sql.replace(":", r"\:")
