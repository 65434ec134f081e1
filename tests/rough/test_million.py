"""A million finished jobs: what is deleted and joined among them holds up no stream."""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from typing_extensions import override

from tests.durable.place import Place
from tests.durable.streams import JobStream
from tests.e2e.server import Site
from tests.rough.conftest import RoughPlace
from tests.waiting import wait_until

JOBS: Final = 1_000_000
EXPIRED: Final = 100_000
SCATTERED: Final = 2_000
ROWS: Final = 40
DAY_S: Final = 86_400
KEPT_DAYS: Final = 30
STEP_S: Final = 0.02
STREAMS: Final = 8
TOKENS: Final = 500
GAP_S: Final = 0.05
ROUNDS: Final = 3
"""The best of so many counts: other processes on the machine hold streams up, too."""


class ArrivalStream(JobStream):
    """A stream that notes when its events come."""

    def __init__(self, place: Place, job: str) -> None:
        self.arrivals: list[float] = []
        super().__init__(place, job)

    @override
    def _take(self, event: dict[str, object]) -> None:
        self.arrivals.append(time.monotonic())
        super()._take(event)

    @property
    def gaps(self) -> list[float]:
        """Between events that follow each other, once it speaks."""
        spoken = self.arrivals[3:-1]
        return [later - earlier for earlier, later in pairwise(spoken)]


def multiply(path: Path, job: str, now: float) -> None:
    """A million jobs like this one, ended over the last sixty days; some with a long journal."""
    with closing(sqlite3.connect(path)) as driver:
        driver.execute("PRAGMA foreign_keys = OFF")
        driver.execute("PRAGMA synchronous = OFF")
        _copy(driver, "job", job, {"id": "printf('job_%032x', n)", "finalized_at": _ended(now)})
        _copy(driver, "attempt", job, {"job": "printf('job_%032x', n)"})
        few = f"FROM number WHERE n % {JOBS // SCATTERED} = 0"
        rows = ", ".join(_values(driver, "chunk", _scattered()))
        driver.execute(
            "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number"
            f" WHERE n < {JOBS}), k(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM k"
            f" WHERE k < {ROWS - 1}) INSERT INTO chunk SELECT {rows}"
            f" FROM (SELECT n {few}), k, (SELECT * FROM chunk WHERE job = :job AND number = 1)",
            {"job": job},
        )
        driver.commit()


def _ended(now: float) -> str:
    """Evenly over the days that are kept; the expired ones just before."""
    oldest, kept = int((now - KEPT_DAYS * DAY_S) * 1e6), KEPT_DAYS * DAY_S * 1_000_000
    return f"iif(n <= {EXPIRED}, {oldest} - n, {oldest} + {int(0.9 * kept)} * n / {JOBS})"


def _scattered() -> dict[str, str]:
    return {
        "job": "printf('job_%032x', n)",
        "number": "k",
        "first_event": "k + 2",
        "last_event": "k + 2",
        "first_token": "k",
    }


def _copy(driver: sqlite3.Connection, table: str, job: str, changed: dict[str, str]) -> None:
    key = "id" if table == "job" else "job"
    values = ", ".join(_values(driver, table, changed))
    driver.execute(
        "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number"
        f" WHERE n < {JOBS}) INSERT INTO {table} SELECT {values}"
        f" FROM number, {table} WHERE {table}.{key} = :job",
        {"job": job},
    )


def _values(driver: sqlite3.Connection, table: str, changed: dict[str, str]) -> list[str]:
    columns = [str(row[1]) for row in driver.execute(f"PRAGMA table_info({table})")]
    return [changed.get(column, column) for column in columns]


def streamed(place: Place) -> Sequence[ArrivalStream]:
    """Eight streams, to their end."""
    jobs = [place.submit(f"job {n} [[tokens={TOKENS}]]", n) for n in range(STREAMS)]
    streams = [ArrivalStream(place, job) for job in jobs]
    for stream in streams:
        stream.finished()
    return streams


def told(name: str, streams: Sequence[ArrivalStream]) -> float:
    gaps = sorted(gap for stream in streams for gap in stream.gaps)
    print(  # noqa: T201 - the figures
        f"\n{name}: {len(gaps)} gaps, median {gaps[len(gaps) // 2] * 1e3:.1f} ms,"
        f" p99 {gaps[len(gaps) * 99 // 100] * 1e3:.1f} ms, worst {gaps[-1] * 1e3:.1f} ms"
    )
    return gaps[-1]


@pytest.mark.torture
@pytest.mark.timeout(900)
def test_retention_and_compaction_among_a_million_jobs_hold_up_no_stream(site: Site) -> None:
    settings = {"worker.rows": STREAMS, "retention.jobs_s": 10 * 365 * DAY_S}
    place = RoughPlace(site, {"step_s": STEP_S}, settings)
    place.start()
    job = place.submit("[[tokens=40]]")
    place.ended(job)
    place.stop()
    multiply(place.site.data_dir / "mlxq.db", job, time.time())
    place.start()
    quiet = min(told("in peace", streamed(place)) for _ in range(ROUNDS))
    place.stop()
    place.settings["retention.jobs_s"] = KEPT_DAYS * DAY_S
    place.start("set app.services.compaction:AFTER_S 1")
    metric, busy = place.server.metric, list[float]()
    for _ in range(ROUNDS):
        busy.append(told("beside deletion and compaction", streamed(place)))
        deleted, joined = metric("jobs_deleted_total"), metric("journals_joined_total")
        print(f"{deleted:.0f} deleted, {joined:.0f} joined so far")  # noqa: T201 - the figures
    assert min(busy) - STEP_S < max(GAP_S, quiet)
    wait_until(lambda: metric("jobs_deleted_total") >= EXPIRED, 300, "the deletions")
    wait_until(lambda: metric("journals_joined_total") >= 0.9 * SCATTERED, 300, "the joins")
