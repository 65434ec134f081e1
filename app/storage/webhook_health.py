"""How endpoints stand, read beside a server or without one."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

_QUERY: Final = (
    "SELECT id, url, reason,"
    " (SELECT count(*) FROM delivery WHERE endpoint = webhook_endpoint.id AND state = 'waiting'),"
    " (SELECT count(*) FROM delivery WHERE endpoint = webhook_endpoint.id AND state = 'parked')"
    " FROM webhook_endpoint ORDER BY id"
)


class EndpointHealth(msgspec.Struct, frozen=True):
    """One endpoint. ``reason`` says why it is disabled, if it is."""

    id: str
    url: str
    reason: str | None
    waiting: int
    parked: int


def endpoints_of(path: Path) -> list[EndpointHealth]:
    """All endpoints of this database file; none when it is of an older schema.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as driver:
        known = driver.execute("SELECT 1 FROM sqlite_schema WHERE name = 'webhook_endpoint'")
        if known.fetchone() is None:
            return []
        return [EndpointHealth(*row) for row in driver.execute(_QUERY)]
