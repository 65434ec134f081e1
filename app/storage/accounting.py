"""Receipts as whoever books them sees them: which are pending, and which were acknowledged."""

from datetime import datetime
from sqlite3 import Row
from typing import Final

import msgspec

from app.domain.receipts import Rank
from app.storage.encoding import checksum, moment
from app.storage.readers import Readers
from app.storage.reports import GenerationReport
from shared.ids import ReportId

_PAYLOAD = msgspec.json.Decoder(GenerationReport)


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The latest receipt of a generation. ``report`` is None when its report was deleted as old, or
    is damaged; ``acked_revision`` is 0 when none was acknowledged."""

    id: ReportId
    generation: str
    revision: int
    rank: Rank
    acked_revision: int
    acked_at: datetime | None
    report: GenerationReport | None

    @property
    def pending(self) -> bool:
        """Whether what it says has not been acknowledged."""
        return self.acked_revision < self.revision


_RECEIPTS: Final = """
SELECT receipt.id, receipt.generation, receipt.revision, receipt.rank, receipt.acked_revision,
    receipt.acked_at, report.seq, report.checksum, report.payload
FROM receipt
LEFT JOIN report ON report.subject = receipt.generation AND report.kind = 'generation'
    AND report.revision = receipt.revision
"""
_PENDING: Final = _RECEIPTS.replace("LEFT JOIN", "CROSS JOIN") + (
    "WHERE receipt.acked_revision < receipt.revision AND report.seq > :after"
    " ORDER BY report.seq LIMIT :limit"
)
"""Receipts are few and reports many: CROSS keeps it from going through those."""


async def load_pending_receipts(readers: Readers, limit: int) -> list[Receipt]:
    """Receipts that were not acknowledged and whose reports are still kept, oldest first. Damaged
    ones take nobody's place: whoever asks for few at a time could never get past them."""
    found: list[Receipt] = []
    after = 0
    while len(found) < limit:
        rows = await readers.rows(_PENDING, {"after": after, "limit": limit})
        found += [one for one in map(_receipt_from, rows) if one.report is not None]
        if len(rows) < limit:
            break
        after = rows[-1]["seq"]
    return found[:limit]


async def load_receipt(readers: Readers, receipt_id: ReportId) -> Receipt | None:
    """This receipt, acknowledged or not."""
    row = await readers.row(_RECEIPTS + "WHERE receipt.id = :id", {"id": receipt_id})
    return None if row is None else _receipt_from(row)


async def load_receipt_of(readers: Readers, generation: str) -> Receipt | None:
    """The receipt of this generation, if it has one."""
    row = await readers.row(
        _RECEIPTS + "WHERE receipt.generation = :generation", {"generation": generation}
    )
    return None if row is None else _receipt_from(row)


def _receipt_from(row: Row) -> Receipt:
    payload: bytes | None = row["payload"]
    if payload is not None and checksum(payload) != row["checksum"]:
        payload = None
    return Receipt(
        id=row["id"],
        generation=row["generation"],
        revision=row["revision"],
        rank=Rank(row["rank"]),
        acked_revision=row["acked_revision"],
        acked_at=None if row["acked_at"] is None else moment(row["acked_at"]),
        report=None if payload is None else _PAYLOAD.decode(payload),
    )
