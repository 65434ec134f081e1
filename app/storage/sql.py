"""What several statements are written with."""

from collections.abc import Iterable

import msgspec


def insert(table: str, columns: tuple[str, ...], **computed: str) -> str:
    """``INSERT`` of these columns, each with the parameter of its name, and of ``computed`` ones
    with their expressions."""
    names = ", ".join((*columns, *computed))
    values = ", ".join((*(f":{column}" for column in columns), *computed.values()))
    return f"INSERT INTO {table} ({names}) VALUES ({values})"  # noqa: S608 - our own names


def insert_where(table: str, columns: tuple[str, ...], condition: str) -> str:
    """``INSERT`` that adds its row only when the condition holds."""
    names, values = ", ".join(columns), ", ".join(f":{column}" for column in columns)
    return f"INSERT INTO {table} ({names}) SELECT {values} WHERE {condition}"


def json_list(values: Iterable[str]) -> str:
    """Any number of values as one parameter, for ``json_each``."""
    return msgspec.json.encode(list(values)).decode()
