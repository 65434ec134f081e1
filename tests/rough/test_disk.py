"""A disk that is full: new work is refused, work at hand goes on or waits, nothing is lost."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.durable.disturbing import let_pass
from tests.durable.place import Place, assert_counted_once
from tests.durable.streams import follow, wait_for_events
from tests.e2e.server import CHAT
from tests.rough.conftest import Begin, RoughPlace
from tests.rough.traces import nothing_stays
from tests.waiting import wait_until

QUICK_LOOKS: Final = "set app.storage.room:LOOK_S 0.05"
BALLAST_BYTES: Final = 4 << 20
SMALL_DISK: Final = (QUICK_LOOKS, f"small-disk {{data}} {BALLAST_BYTES}")
NO_ROOM: Final = ("small-disk {data} 0",)
SLOW: Final = {"step_s": 0.02}
BALLAST: Final = {"storage.ballast_bytes": BALLAST_BYTES}
LONG: Final = "[[tokens=100]]"
BIG: Final = "much " * 100_000
"""A request that has no room in any page."""


@contextmanager
def full(place: Place) -> Generator[None]:
    """Others take what was left of the disk; in the end they give it back."""
    marker = place.site.data_dir / "full"
    marker.touch()
    wait_until(lambda: place.post("/v1/jobs", place.body(BIG)).status_code == 507, 20, "a 507")
    try:
        yield
    finally:
        marker.unlink(missing_ok=True)


def refused_at(place: Place, path: str, body: Any = None) -> None:
    """The door takes nothing, and says that coming again soon is of no use."""
    answer = place.post(path, body)
    assert answer.status_code == 507, (path, answer.text)
    assert answer.json()["error"]["code"] == "storage_full", path
    assert answer.headers["x-should-retry"] == "false", path


def refused_everywhere(place: Place, running: str) -> None:
    small, chat = place.body("hello"), place.server.body("hello")
    refused_at(place, "/v1/jobs", small)
    refused_at(place, "/v1/jobs/bulk", {"jobs": [small, small]})
    refused_at(place, CHAT, chat)
    refused_at(place, CHAT, {**chat, "stream": True})
    refused_at(place, f"/v1/jobs/{running}/cancel")
    refused_at(place, "/admin/v1/drain", {"mode": "finish"})
    assert not place.server.get("/admin/v1/status").json()["draining"]


def readiness(place: Place) -> tuple[int, str | None]:
    answer = place.server.get("/readyz")
    return answer.status_code, answer.json()["reason"]


def undisturbed(place: Place) -> list[int]:
    """The tokens of the long job, in peace."""
    job = place.submit(LONG)
    place.ended(job)
    return place.tokens(job)


def test_work_at_hand_ends_in_the_ballasts_room_and_new_work_is_refused(begin: Begin) -> None:
    place = begin(*SMALL_DISK, script=SLOW, settings=BALLAST)
    peace = undisturbed(place)
    ballast = place.site.data_dir / "ballast"
    assert ballast.stat().st_blocks * 512 >= BALLAST_BYTES
    with nothing_stays(place.server):
        job = place.submit(LONG)
        place.running(job, tokens=5)
        with full(place):
            wait_until(lambda: not ballast.exists(), what="the drop of the ballast")
            assert readiness(place) == (503, "the server is out of disk space")
            assert place.server.metric("store_out_of_room") == 1
            refused_everywhere(place, job)
            assert place.ended(job)["state"] == "completed"
            assert place.tokens(job) == peace
            assert_counted_once(place, [job])
            assert place.job(job)["state"] == "completed"
            refused_at(place, "/v1/jobs", place.body("hello"))
        wait_until(lambda: readiness(place) == (200, None), what="room")
        assert ballast.exists()
        place.ended(place.submit("[[tokens=1]]"))


def test_without_a_ballast_work_at_hand_waits_and_nothing_is_shown_that_is_not_recorded(
    begin: Begin,
) -> None:
    place = begin(*NO_ROOM, script=SLOW)
    peace = undisturbed(place)
    with nothing_stays(place.server):
        job = place.submit(LONG)
        (stream,) = follow(place, [job])
        wait_for_events([stream], 5)
        with full(place):
            for _ in range(20):  # until the last free page is full
                place.post("/v1/jobs", place.body(BIG))
            wait_until(lambda: place.server.metric("store_retries_total"), what="a retry")
            let_pass(0.5)
            refused_everywhere(place, job)
            shown = [event for event in stream.events if event["type"] == "text"]
            let_pass(0.5)
            assert len([e for e in stream.events if e["type"] == "text"]) - len(shown) <= 1
        stream.finished()
        assert place.ended(job)["state"] == "completed"
        assert place.tokens(job) == peace
        assert_counted_once(place, [job])


def test_a_server_starts_on_a_full_disk_and_says_what_is_wrong(begin: Begin) -> None:
    place = begin(*SMALL_DISK, script=SLOW, settings=BALLAST)
    peace = undisturbed(place)
    job = place.submit(LONG)
    place.running(job, tokens=5)
    place.kill_parent()
    marker = place.site.data_dir / "full"
    marker.touch()
    place.start(*SMALL_DISK)
    assert readiness(place) == (503, "the server is out of disk space")
    assert place.server.get("/livez").status_code == 200
    refused_at(place, "/v1/jobs", place.body("hello"))
    assert place.ended(job)["state"] == "completed"
    assert place.tokens(job) == peace
    assert_counted_once(place, [job])
    marker.unlink()
    wait_until(lambda: readiness(place) == (200, None), what="room")
    place.ended(place.submit("[[tokens=1]]"))


def test_a_stop_does_not_wait_for_room(begin: Begin) -> None:
    place = begin(
        *NO_ROOM,
        "set app.services.draining:SETTLE_S 0.5",
        "set app.services.shutdown:SETTLE_S 0.5",
        "set app.services.shutdown:UNRECORDED_S 0.5",
        "set app.services.workers:UNRECORDED_S 0.5",
        script=SLOW,
        settings={"server.shutdown_grace_s": 0.5, "worker.stop_grace_s": 0.5},
    )
    job = place.submit("[[tokens=2000]]")
    place.running(job, tokens=5)
    with full(place):
        place.server.stop(timeout=15)
        assert not place.site.workers()
    place.start()
    place.running(job, tokens=20)
    assert place.cancel(job)["state"] == "cancelled"


def fill_at_random(place: RoughPlace, jobs: int) -> None:
    """Jobs on a disk that is full now and then; those that were taken come to their end."""
    contents = [f"job {n} [[tokens={20 + n}]]" for n in range(jobs)]
    taken: dict[str, str] = {}
    for content in contents:
        answer = place.post("/v1/jobs", place.body(content))
        while answer.status_code == 507:
            answer = place.post("/v1/jobs", place.body(content))
        assert answer.status_code == 202, answer.text
        taken[answer.json()["id"]] = content
    streams = [stream.finished() for stream in follow(place, list(taken))]
    assert {row["id"] for row in place.store.jobs()} >= set(taken)
    for stream in streams:
        assert place.ended(stream.job)["state"] == "completed"
        assert stream.ending["usage"]["completion_tokens"] == len(place.tokens(stream.job))
        assert len(place.attempts(stream.job)) == 1
    assert_counted_once(place, list(taken))


@pytest.mark.parametrize("settings", [BALLAST, {}], ids=["ballast", "no-ballast"])
def test_a_disk_that_is_full_at_random_commits_loses_nothing(
    begin: Begin, settings: dict[str, Any]
) -> None:
    place = begin(QUICK_LOOKS, "random-disk 1", script={"step_s": 0.005}, settings=settings)
    fill_at_random(place, 12)
    assert place.server.metric("store_retries_total") > 3


@pytest.mark.torture
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("settings", [BALLAST, {}], ids=["ballast", "no-ballast"])
def test_a_disk_that_is_full_at_random_commits_loses_nothing_ever(
    begin: Begin, settings: dict[str, Any], seed: int
) -> None:
    place = begin(QUICK_LOOKS, f"random-disk {seed}", script={"step_s": 0.005}, settings=settings)
    fill_at_random(place, 100)
