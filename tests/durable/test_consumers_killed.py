"""Each report is booked once by a consumer that is killed between reading and acknowledging, and
by a webhook receiver that is killed too, while the server and its workers are."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durable.conftest import NewPlace
from tests.durable.consuming import Booker, Books
from tests.durable.hooked import HOOKED, SOON, Receiver, assert_received, wait_for_all
from tests.durable.place import Place
from tests.durable.receipts import assert_receipts, generations, receipts
from tests.e2e.store import Row
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path / "books.db")


def feed(place: Place) -> list[Row]:
    """The reports that stand, in order."""
    return place.store.rows("SELECT * FROM report WHERE tombstone = 0 ORDER BY seq")


def assert_booked_once(place: Place, books: Books) -> None:
    """What was booked is the feed: nothing is missing, nothing is there twice."""
    booked = books.reports()
    keys = [(report["id"], report["revision"]) for report in booked]
    assert len(set(keys)) == len(keys)
    assert {row["id"] for row in feed(place)} == {report["id"] for report in booked}
    by_place = {(report["epoch"], report["seq"]): report["id"] for report in booked}
    assert len(by_place) == len(booked)


def test_a_consumer_killed_before_it_acknowledges_is_shown_the_same_again(
    new_place: NewPlace, books: Books
) -> None:
    place = new_place()
    place.start()
    for number in range(12):
        place.ended(place.submit(f"{number} [[tokens=1]]"))
    booker = Booker(place, books)
    for count in (1, 3, 5, 7, 9):
        booker.booked(count)
        booker.kill()
    booked = booker.booked(12)
    booker.end()
    assert [report["seq"] for report in booked[:12]] == list(range(1, 13))
    assert booker.kills == 5
    assert_booked_once(place, books)


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    it = Receiver(tmp_path)
    yield it
    it.end()


def disturb(place: Place, booker: Booker, receiver: Receiver, chance: random.Random) -> None:
    """One thing that goes wrong."""
    deed = chance.choice(["worker", "parent", "booker", "booker", "receiver", "receiver"])
    if deed == "worker" and place.site.workers():
        place.site.workers()[0].kill()
    elif deed == "parent":
        place.restart(*SOON)
    elif deed == "receiver":
        receiver.kill()
    else:
        booker.kill()


def run_campaign(
    place: Place, books: Books, receiver: Receiver, jobs: int, disturbances: int, seed: int
) -> None:
    """Jobs that are cancelled at random moments while everything is killed, and what must be true
    of their reports and of the workers' receipts."""
    chance = random.Random(seed)
    place.start(*SOON)
    receiver.register(place)
    booker = Booker(place, books)
    batch = max(1, jobs // disturbances)
    submitted: list[str] = []
    while len(submitted) < jobs:
        fresh = [
            place.submit(f"{len(submitted) + n} [[tokens={chance.randrange(1, 60)}]]")
            for n in range(min(batch, jobs - len(submitted)))
        ]
        submitted += fresh
        for job in chance.sample(fresh, len(fresh) // 2):
            place.cancel(job)
        disturb(place, booker, receiver, chance)
        for job in chance.sample(fresh, len(fresh) // 3):
            place.cancel(job)
    for job in submitted:
        place.ended(job, 90)
    place.stop()
    place.start(*SOON)
    wait_for_all(place, receiver)
    # A process for each report, on a machine that may be busy.
    patience_s = 90 + jobs / 2
    wait_until(lambda: len(books.reports()) >= len(feed(place)), patience_s, "all in the books")
    booker.end()
    assert booker.kills
    assert receiver.kills
    assert_received(place, receiver)
    assert_campaign(place, books, submitted)


def assert_campaign(place: Place, books: Books, submitted: list[str]) -> None:
    jobs = [report for report in books.reports() if report["kind"] == "job"]
    assert sorted(report["subject"] for report in jobs) == sorted(submitted)
    for report in jobs:
        row = place.store.job(report["subject"])
        delivered = sum(a["delivered_tokens"] for a in place.attempts(row["id"]))
        assert report["outcome"] == row["state"]
        started = report["report"]["timings"]["started_at"]
        assert (started is None) == (row["started_at"] is None)
        assert report["report"]["usage"]["completion_tokens"] == delivered
    assert_booked_once(place, books)
    assert_receipts(place)
    over = {row["id"] for row in generations(place) if row["state"] in ("lost", "gone")}
    assert {row["subject"] for row in receipts(place)} >= over


def test_cancelled_jobs_and_killed_processes_are_each_told_once(
    new_place: NewPlace, books: Books, receiver: Receiver
) -> None:
    place = new_place({"step_s": 0.002}, {"worker.restart_limit": 1_000, **HOOKED})
    run_campaign(place, books, receiver, jobs=200, disturbances=15, seed=1)


@pytest.mark.torture
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_cancelled_jobs_are_each_told_once(
    new_place: NewPlace, books: Books, receiver: Receiver, seed: int
) -> None:
    place = new_place({"step_s": 0.002}, {"worker.restart_limit": 1_000, **HOOKED})
    run_campaign(place, books, receiver, jobs=1_000, disturbances=60, seed=seed)
