"""What all tables are made of: the registry they stand in, and their columns."""

from typing import Final

import sqlalchemy as sa
from sqlalchemy import Column, Integer, LargeBinary, MetaData, Text

_LISTED_MAX: Final = 2

metadata: Final = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_name)s",
        "uq": "%(table_name)s_%(column_0_name)s_unique",
        "ck": "%(table_name)s_%(constraint_name)s",
        "fk": "%(table_name)s_%(column_0_name)s_reference",
        "pk": "%(table_name)s_key",
    }
)


def text(name: str, *, null: bool = False, default: str | None = None) -> Column[str]:
    return Column(name, Text, nullable=null, server_default=default)


def number(name: str, *, null: bool = False, default: str | None = None) -> Column[int]:
    return Column(
        name, Integer, nullable=null, server_default=sa.text(default) if default else None
    )


def count(name: str) -> Column[int]:
    return number(name, default="0")


def blob(name: str, *, null: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=null)


def one_of(column: str, values: tuple[str, ...]) -> str:
    """A condition. SQLite makes a table of a list of more than two each time it looks, so a longer
    one is spelled out."""
    listed = [f"'{value}'" for value in values]
    if len(listed) <= _LISTED_MAX:
        return f"{column} IN ({', '.join(listed)})"
    return f"({' OR '.join(f'{column} = {value}' for value in listed)})"
