"""Pages of the feed. A damaged report is handed on without its content: it holds up nobody."""

from sqlite3 import Row
from typing import Final

import msgspec

from app.domain.feed import About, Report
from app.storage.encoding import checksum, moment
from app.storage.readers import Readers

_PAGE: Final = "SELECT * FROM report WHERE seq > :after AND tombstone = 0 ORDER BY seq LIMIT :limit"
_ABOUT: Final = msgspec.json.Decoder(About)


async def load_feed_page(readers: Readers, after: int, limit: int) -> list[Report]:
    """Reports from behind this place on, in order; those that were replaced are left out."""
    rows = await readers.rows(_PAGE, {"after": after, "limit": limit})
    return [_report_from(row) for row in rows]


def _report_from(row: Row) -> Report:
    payload: bytes | None = row["payload"]
    if payload is None or checksum(payload) != row["checksum"]:
        payload = None
    return Report(
        id=row["id"],
        revision=row["revision"],
        seq=row["seq"],
        kind=row["kind"],
        subject=row["subject"],
        outcome=row["outcome"],
        reason=row["reason"],
        complete=bool(row["complete"]),
        created_at=moment(row["created_at"]),
        payload=payload,
        about=None if payload is None else _ABOUT.decode(payload),
    )
