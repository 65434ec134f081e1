"""A flipped bit in what is stored: it costs one job or one request, and is told as what it is."""

import sqlite3
from contextlib import closing

from tests.durable.place import Place
from tests.durable.streams import follow
from tests.e2e.store import failure_code
from tests.rough.conftest import Begin
from tests.rough.traces import nothing_stays


def damage(place: Place, sql: str, *parameters: object) -> None:
    """Change the store of a server that is not there, behind its back; a row at the least."""
    with closing(sqlite3.connect(place.store.path)) as driver:
        changed = driver.execute(sql, parameters).rowcount
        driver.commit()
    assert changed > 0, f"damaged nothing: {sql}"


def test_damaged_output_costs_those_who_read_it_and_nobody_else(begin: Begin) -> None:
    place = begin()  # compaction hurries only once the damage is there: a joined row has no third
    jobs = [place.submit(f"job {n} [[tokens=30]]", n) for n in range(3)]
    for job in jobs:
        place.ended(job)
    damaged, *whole = jobs
    place.stop()
    damage(place, "UPDATE chunk SET parts = x'90' WHERE job = ? AND number = 3", damaged)
    place.start("set app.services.compaction:AFTER_S 0.2")
    with nothing_stays(place.server):
        answer = place.server.get(f"/v1/jobs/{damaged}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "storage_damaged")
        assert answer.headers["x-should-retry"] == "false"
        events = place.server.get(f"/v1/jobs/{damaged}/events").text
        assert events.count("event: error") == 1
        assert "storage_damaged" in events
        for stream in follow(place, whole):
            assert stream.finished().ending["state"] == "completed"
        for job in whole:
            assert place.job(job)["state"] == "completed"
        place.ended(place.submit("[[tokens=1]]"))
    rows = len(place.chunks(damaged))
    assert rows > 10  # nor is it joined
    damage(place, "DELETE FROM chunk WHERE job = ?", damaged)  # for the check of the whole store
    damage(place, "DELETE FROM job WHERE id = ?", damaged)
    damage(place, "DELETE FROM attempt WHERE job = ?", damaged)


def test_a_damaged_request_fails_its_job_and_no_other(begin: Begin) -> None:
    place = begin(settings={"worker.rows": 1, "worker.prefetch": 0}, script={"step_s": 0.02})
    running = place.submit("[[tokens=200]]")
    waiting = place.submit("[[tokens=3]]")
    other = place.submit("[[tokens=3]]")
    place.running(running)
    place.kill_parent()
    request = place.store.job(waiting)["request"]
    damage(place, "UPDATE job SET request = zeroblob(length(request)) WHERE id = ?", waiting)
    place.start()
    assert failure_code(place.ended(waiting)) == "storage_damaged"
    assert place.ended(running)["state"] == "completed"
    assert place.ended(other)["state"] == "completed"
    place.stop()
    damage(place, "UPDATE job SET request = ? WHERE id = ?", request, waiting)
