"""What all tables are made of: the registry they stand in, and their columns."""

from typing import Final

import sqlalchemy as sa
from sqlalchemy import Column, Integer, LargeBinary, MetaData, Text

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
    listed = ", ".join(f"'{value}'" for value in values)
    return f"{column} IN ({listed})"
