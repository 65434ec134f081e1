"""Jobs that wait for each other at random, while everything is killed at random.

A round submits a web of jobs, each waiting for some that were submitted before, beside a schedule
that is due every second; now and then it cancels one, and kills the server, its workers or both.
Whatever comes when: all of them end, each once; nobody runs before those that it waits for have
completed; who waits for one that did not complete fails, and nobody else does.
"""

import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import httpx

from tests.durable.disturbing import let_pass
from tests.durable.place import SLACK_S, Place
from tests.e2e.store import Row
from tests.waiting import wait_until

CANCELLED_ONE_IN: Final = 8
AFTER_MAX: Final = 3
PAUSE_S: Final = 0.4

Web = Mapping[str, list[str]]
"""Each job, and those that it waits for."""


def run_web(place: Place, seed: int, jobs: int, kills: int) -> None:
    """One round, on a server that runs."""
    chance = random.Random(seed)
    schedule = place.post(
        "/v1/schedules",
        {"name": f"web-{seed}", "every_s": 1, "job": place.body("[[tokens=2]]")},
    ).json()["id"]
    web = _submitted(place, chance, jobs)
    for job in web:
        if chance.randrange(CANCELLED_ONE_IN) == 0:
            place.cancel(job)
    for _ in range(kills):
        let_pass(chance.random() * PAUSE_S)
        _kill(place, chance)
    for job in web:
        place.ended(job, 4 * SLACK_S)
    wait_until(lambda: _firings(place, schedule), SLACK_S, "a firing")
    _pause(place, schedule)
    assert_web(place, web)
    assert_fired(place, schedule)


def assert_web(place: Place, web: Web) -> None:
    """Each job ended once, as those that it waited for let it."""
    rows = {job: place.store.job(job) for job in web}
    for job, before in web.items():
        row = rows[job]
        assert len(place.store.reports(job)) == 1, job
        lost = [other for other in before if rows[other]["state"] != "completed"]
        if row["state"] == "completed":
            assert not lost, job
            starts = [attempt["claimed_at"] for attempt in place.attempts(job)]
            assert min(starts) >= max(
                (rows[other]["finalized_at"] for other in before), default=0
            ), job
        elif row["state"] == "failed":
            assert lost, row["failure"]
            assert '"dependency_failed"' in row["failure"], row["failure"]


def assert_fired(place: Place, schedule: str) -> None:
    """No due fired twice, and each firing is a job that completed."""
    found = _firings(place, schedule)
    (row,) = place.store.rows("SELECT * FROM schedule WHERE id = ?", schedule)
    assert row["fired"] == len(found) == len({firing["due"] for firing in found}) > 0
    for firing in found:
        assert place.ended(firing["job"])["state"] == "completed"
        assert len(place.store.reports(firing["job"])) == 1


def _firings(place: Place, schedule: str) -> list[Row]:
    return place.store.rows("SELECT * FROM firing WHERE schedule = ? ORDER BY due", schedule)


def _submitted(place: Place, chance: random.Random, jobs: int) -> dict[str, list[str]]:
    web: dict[str, list[str]] = {}
    for _ in range(jobs):
        before = chance.sample(list(web), min(len(web), chance.randint(0, AFTER_MAX)))
        words = f"[[tokens={chance.randint(1, 20)}]]"
        web[place.submit(words, seed=chance.randrange(100), after=before)] = before
    return web


def _kill(place: Place, chance: random.Random) -> None:
    deed = chance.choice(["parent", "worker", "both"])
    if deed != "parent":
        for worker in place.site.workers():
            with suppress(ProcessLookupError):
                worker.kill()
    if deed != "worker":
        place.restart()


def _pause(place: Place, schedule: str) -> None:
    path = f"{place.server.base}/v1/schedules/{schedule}"

    def paused() -> bool:
        with suppress(httpx.HTTPError):
            answer = place.server.client.patch(path, json={"paused": True})
            return answer.status_code == 200
        return False

    wait_until(paused, SLACK_S, "the schedule's pause")
