"""What is kept goes when its time is over, and nothing else."""

import os
import time
from pathlib import Path
from typing import Final

from tests.durable.place import Place
from tests.rough.conftest import Begin
from tests.rough.traces import nothing_stays
from tests.waiting import wait_until

DAY_S: Final = 86_400


def logs(place: Place) -> set[str]:
    return {path.name for path in (place.site.data_dir / "logs").iterdir()}


def aged(path: Path, days: float) -> None:
    """Last written so many days ago."""
    then = time.time() - days * DAY_S
    path.touch()
    os.utime(path, (then, then))


def test_logs_of_workers_that_are_gone_are_kept_for_a_week(begin: Begin) -> None:
    place = begin()
    place.warm()
    (living,) = logs(place)
    directory = place.site.data_dir / "logs"
    aged(directory / living, 30)
    aged(directory / "gen_old.log", 8)
    aged(directory / "gen_old.log.1", 8)
    aged(directory / "gen_young.log", 6)
    place.kill_parent()
    place.start()  # the worker is taken over, so its log is still written
    wait_until(lambda: logs(place) == {living, "gen_young.log"}, 20, "the end of the old logs")
    place.ended(place.submit("[[tokens=1]]"))
    assert logs(place) == {living, "gen_young.log"}


def test_jobs_and_reports_go_each_after_their_own_time(begin: Begin) -> None:
    settings = {"retention.jobs_s": 1, "retention.reports_s": 3}
    place = begin(settings=settings)
    with nothing_stays(place.server):
        job = place.submit("[[tokens=5]]")
        place.ended(job)
        assert place.store.reports(job)
        wait_until(lambda: place.store.count() == 0, 20, "the end of the jobs")
        assert place.store.reports(job)
        assert place.server.get(f"/v1/jobs/{job}").status_code == 404
        wait_until(lambda: not place.store.reports(job), 20, "the end of the reports")
        assert place.server.metric("jobs_deleted_total") >= 1
        for table in ("chunk", "attempt", "idempotency"):
            assert place.store.rows(f"SELECT * FROM {table}") == []
