"""Places in the feed of reports.

The counter moves once per commit, after everything else, and is followed only by the reports: so
the order of commits is the order of numbers, a rollback leaves no gap, and pruning frees none.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from app.storage.driver import Driver
from app.storage.encoding import checksum, micros
from app.storage.operations import NewReport, Rank, Statement, Values
from app.storage.sql import insert
from app.storage.together import change

_TAKE: Final = "UPDATE feed SET last = last + ?, bytes = bytes + ? RETURNING last"
_INSERT: Final = Statement(
    "report.insert",
    Rank.REPORT_INSERT,
    insert(
        "report",
        (
            "id",
            "revision",
            "seq",
            "kind",
            "subject",
            "rank",
            "outcome",
            "reason",
            "complete",
            "created_at",
            "checksum",
            "payload",
        ),
    ),
    together=True,
)
_UNPLACED_SIZE: Final = "SELECT sum(length(payload)) FROM report WHERE seq < 0"
_PLACE: Final = "UPDATE report SET seq = ? WHERE seq = ?"


def publish(driver: Driver, reports: Sequence[NewReport]) -> None:
    """Insert these reports at the end of the feed. Nothing but the commit may follow."""
    if reports:
        first = _take(driver, len(reports), _size(reports))
        change(driver, _INSERT, [_row(r, first + n) for n, r in enumerate(reports)])


def insert_unplaced(driver: Driver, reports: Iterable[NewReport], already: int) -> None:
    """Insert reports without a place yet, so that an error in one is its own operation's.

    They stand at negative numbers, which count on from the ``already`` unplaced ones.
    """
    for number, report in enumerate(reports, already + 1):
        driver.execute(_INSERT.numbered, _row(report, -number))


def place(driver: Driver, count: int) -> None:
    """Give the ``count`` unplaced reports their places. Nothing but the commit may follow."""
    if count:
        ((size,),) = driver.execute(_UNPLACED_SIZE).fetchall()
        first = _take(driver, count, size)
        driver.executemany(_PLACE, [(first + n, -(n + 1)) for n in range(count)])


def _take(driver: Driver, count: int, size: int) -> int:
    ((last,),) = driver.execute(_TAKE, (count, size)).fetchall()
    return int(last) - count + 1


def _size(reports: Sequence[NewReport]) -> int:
    return sum(len(report.payload) for report in reports)


def _row(report: NewReport, seq: int) -> Values:
    """The columns in the order of the statement."""
    return (
        report.id,
        report.revision,
        seq,
        report.kind,
        report.subject,
        report.rank,
        report.outcome,
        report.reason,
        int(report.complete),
        micros(report.created_at),
        checksum(report.payload),
        report.payload,
    )
