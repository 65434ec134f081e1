"""What goes on around a crash point, and what must come of it whoever dies there.

In each scene four jobs run. A process is killed at the point, the server is started again if it was
the parent, and then every job must have ended once, with the tokens and the text that it has when
nothing goes wrong, and the store must be in order.
"""

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import httpx
import psutil

from tests.durable.disturbing import Load, assert_undisturbed, scripted
from tests.durable.hooked import SOON, Receiver, assert_received, wait_for_all
from tests.durable.order import assert_in_order
from tests.durable.place import SLACK_S, Place, assert_counted_once
from tests.durable.receipts import assert_receipts
from tests.durable.streams import JobStream
from tests.reliability.crash_points import Point, Side
from tests.reliability.dying import ARMED, HIT, arm
from tests.waiting import wait_until

JOBS: Final = 4
TOKENS: Final = 25
LONG: Final = 70
"""Tokens of jobs that something is to befall while they run."""
LEFT: Final = 30
"""Of which so many must be to come: what is on its way is less."""
BEGUN: Final = 3
"""Tokens in the journal that say that a job runs."""
TRIES: Final = 10
ENDLESS: Final = "[[tokens=100000]]"
HANGS: Final = "[[tokens=100]] [[hang_at=5]]"
JOIN_SOON: Final = "set app.services.compaction:AFTER_S 0.1"
REPLACE_SOON: Final = "set app.services.cancellation:REPLACE_S 0.3"


@dataclass
class Day:
    """One point, on a place whose server runs and is idle; at the end it is so again."""

    place: Place
    point: Point
    chance: random.Random
    load: Load = field(default_factory=lambda: _load(0))
    streams: dict[int, JobStream] = field(default_factory=dict[int, JobStream])
    number: int = 0

    def __post_init__(self) -> None:
        self.load = _load(self.chance.randrange(10**6))

    @property
    def orders(self) -> list[str]:
        """What every server of this place is told."""
        return orders(self.place)

    def arm(self) -> None:
        """From now on the process dies that comes to the point."""
        arm(self.place.site.root, self.point, self.chance.randint(1, self.point.late))

    def submit(self) -> None:
        """Every job that was not accepted yet, under a key: so a repeat makes no second one."""
        for number, asked in enumerate(self.load.asked):
            if number not in self.streams:
                job = self._submit(f"{self.point.title}/{asked.content}", asked.content, asked.seed)
                if job is None:
                    return
                self.streams[number] = JobStream(self.place, job)

    def run(self) -> None:
        """Until every job has begun and none can end: the worker stands still. On a busy machine
        one may have ended before that is seen; then others are tried."""
        for _ in range(TRIES):
            self.load = _load(self.chance.randrange(10**6), LONG)
            self.submit()
            jobs = [stream.job for stream in self.streams.values()]
            for job in jobs:
                self.place.running(job, BEGUN)
            self.place.worker().suspend()
            if all(len(self.place.tokens(job)) <= LONG - LEFT for job in jobs):
                return
            self.go_on()
            for stream in self.streams.values():
                stream.finished()
            self.streams.clear()
        raise AssertionError("the machine is too busy for this: all jobs end before they are seen")

    def go_on(self) -> None:
        """The worker, if it still lives."""
        for worker in self.place.site.workers():
            with suppress(psutil.NoSuchProcess):
                worker.resume()

    def asked_back(self) -> None:
        """Wait until the worker was asked for its rows, or somebody has died; then it goes on."""
        asked = "SELECT 1 FROM command WHERE kind = 'preempt' LIMIT 1"
        hit = self.place.site.root / HIT
        wait_until(lambda: hit.exists() or bool(self.place.store.rows(asked)), SLACK_S, "a request")
        self.go_on()

    def hit(self) -> None:
        """Wait until somebody has died, and start the server again if it was its parent."""
        root = self.place.site.root
        wait_until((root / HIT).exists, SLACK_S, f"somebody to come to: {self.point.title}")
        if self.point.side is Side.PARENT:
            self.place.parent_died()
            self.place.start(*self.orders)

    def converge(self) -> None:
        """Everything is as it must be."""
        assert not (self.place.site.root / ARMED).exists()
        self.submit()
        assert len(self.streams) == JOBS
        streams = [self.streams[number].finished() for number in range(JOBS)]
        assert_undisturbed(self.place, self.load, streams)
        self.place.server.wait_until_idle()
        assert_in_order(self.place.store.path)
        assert_receipts(self.place)

    def _submit(self, key: str, content: str, seed: int) -> str | None:
        body = self.place.body(content, seed)
        try:
            answer = self.place.post("/v1/jobs", body, idempotency_key=key)
        except httpx.HTTPError:
            return None
        assert answer.status_code in (200, 202), answer.text
        return answer.json()["id"]


def orders(place: Place) -> list[str]:
    """What every server of this place is told."""
    return [
        JOIN_SOON,
        REPLACE_SOON,
        *SOON,
        f"call tests.reliability.dying:in_parent {place.site.root}",
    ]


def _load(salt: int, tokens: int = TOKENS) -> Load:
    return scripted(*(f"job {n} of {salt} [[tokens={tokens}]]" for n in range(JOBS)))


# --- the scenes --------------------------------------------------------------------------------


def work(day: Day) -> None:
    """Jobs from their submission to their joined journals."""
    day.arm()
    day.submit()
    day.hit()
    day.converge()


def begin(day: Day) -> None:
    """The same, with no worker there."""
    day.place.worker_gone()
    day.place.server.wait_until_idle()
    _no_worker_known(day.place)
    work(day)


def cancel(day: Day) -> None:
    """One more job is cancelled, by somebody who asks until there is an answer."""
    doomed = day.place.submit(ENDLESS)
    day.place.running(doomed, BEGUN)
    day.arm()
    _ask_to_cancel(day.place, doomed)
    day.submit()
    day.hit()
    day.place.cancel(doomed)
    assert day.place.ended(doomed)["state"] == "cancelled"
    day.converge()
    assert_counted_once(day.place, [doomed])


def waiting(day: Day) -> None:
    """Jobs that wait for others, one of which is cancelled."""
    place = day.place
    first, doomed = place.submit(f"[[tokens={TOKENS}]]"), place.submit(ENDLESS)
    place.running(doomed, BEGUN)
    day.arm()
    _web(day, first, doomed)
    _ask_to_cancel(place, doomed)
    day.hit()
    second, third, lost = _web(day, first, doomed)
    place.cancel(doomed)
    states = [place.ended(job)["state"] for job in (first, second, third, lost)]
    assert states == ["completed", "completed", "completed", "failed"]
    day.converge()
    assert_counted_once(place, [first, second, third, lost, doomed])


def firing(day: Day) -> None:
    """A schedule that is due every second."""
    place, name = day.place, f"s{day.chance.randrange(10**9)}"
    body = {"name": name, "every_s": 1, "job": place.body("[[tokens=2]]")}
    day.arm()
    with suppress(httpx.HTTPError):
        place.post("/v1/schedules", body)
    day.hit()
    assert place.post("/v1/schedules", body).status_code in (201, 422)
    sql = "SELECT firing.* FROM firing JOIN schedule ON schedule.id = schedule WHERE name = ?"
    wait_until(lambda: place.store.rows(sql, name), SLACK_S, "a firing")
    path = f"{place.server.base}/v1/schedules/{name}"
    made = place.server.client.patch(path, json={"paused": True}).json()
    found = place.store.rows(sql, name)
    assert made["fired"] == len(found) == len({row["due"] for row in found})
    assert {place.ended(row["job"])["state"] for row in found} == {"completed"}
    day.converge()
    assert_counted_once(place, [row["job"] for row in found])


def hung(day: Day) -> None:
    """A job hangs with its worker, which is killed when a cancel is not answered."""
    _fresh_worker(day.place)
    doomed = day.place.submit(HANGS)
    day.place.running(doomed, BEGUN)
    day.submit()
    day.arm()
    _ask_to_cancel(day.place, doomed)
    day.hit()
    assert day.place.ended(doomed)["state"] == "cancelled"
    day.converge()
    assert_counted_once(day.place, [doomed])


def loss(day: Day) -> None:
    """The worker is killed; if the parent dies of it, it is the next that finds it dead."""
    day.run()
    day.arm()
    day.place.worker().kill()
    day.hit()
    day.converge()


def loss_of_a_child(day: Day) -> None:
    """The same, of a worker that this very parent has started."""
    _fresh_worker(day.place)
    loss(day)


def loss_of_the_adopted(day: Day) -> None:
    """The same, of one that an earlier parent has started."""
    day.place.restart(*day.orders)
    loss(day)


def stop(day: Day) -> None:
    """The server is told to stop: jobs are asked back, the worker is sealed and leaves."""
    day.run()
    day.arm()
    day.place.up.clear()
    day.place.server.tell(signal.SIGTERM)
    day.asked_back()
    day.hit()
    if day.point.side is Side.WORKER:
        assert day.place.server.process.wait(SLACK_S) == 0
        day.place.start(*day.orders)
    day.converge()


def drain(day: Day) -> None:
    """A drain that asks jobs back."""
    day.run()
    day.arm()
    with suppress(httpx.HTTPError):
        day.place.post("/admin/v1/drain", {"mode": "checkpoint", "timeout_s": 30})
    day.asked_back()
    day.hit()
    day.converge()
    for row in day.place.store.rows("SELECT * FROM drain"):
        (report,) = day.place.store.reports(row["id"])
        assert report["outcome"] == row["state"] != "running"


def delivery(day: Day) -> None:
    """Every ending is sent to a receiver that is not always kind, and booked there once."""
    root = day.place.site.root / f"receiver-{time.monotonic_ns()}"
    root.mkdir()
    receiver = Receiver(root)
    try:
        endpoint = receiver.register(day.place)
        work(day)
        wait_for_all(day.place, receiver)
        assert_received(day.place, receiver)
        day.place.server.client.delete(f"{day.place.server.base}/v1/webhook_endpoints/{endpoint}")
    finally:
        receiver.end()


def boot(day: Day) -> None:
    """The parent was killed in the middle of work; the next dies while it starts."""
    day.run()
    day.place.kill_parent()
    day.arm()
    day.go_on()
    if day.point.side is Side.PARENT:
        day.place.start_and_die(*day.orders)
    day.place.start(*day.orders)
    wait_until((day.place.site.root / HIT).exists, SLACK_S, day.point.title)
    day.converge()


SCENES: Final[dict[str, Callable[[Day], None]]] = {
    "work": work,
    "begin": begin,
    "cancel": cancel,
    "waiting": waiting,
    "firing": firing,
    "hung": hung,
    "loss": loss,
    "loss of a child": loss_of_a_child,
    "loss of the adopted": loss_of_the_adopted,
    "stop": stop,
    "drain": drain,
    "delivery": delivery,
    "boot": boot,
}


def _web(day: Day, first: str, doomed: str) -> list[str]:
    """One job after the first, one after that, one after the doomed; each under a key, so that a
    repeat makes no second one. Fewer where the server dies of it."""
    found: list[str] = []
    for number in range(3):
        after = [doomed] if number == 2 else [found[-1] if found else first]
        body = day.place.body(f"[[tokens=2]] {number}", after=after)
        key = f"{day.point.title}/{day.load.asked[0].content}/{number}"
        try:
            answer = day.place.post("/v1/jobs", body, idempotency_key=key)
        except httpx.HTTPError:
            break
        assert answer.status_code in (200, 202), answer.text
        found.append(answer.json()["id"])
    return found


def _ask_to_cancel(place: Place, job: str) -> None:
    with suppress(httpx.HTTPError):
        place.post(f"/v1/jobs/{job}/cancel")


def _fresh_worker(place: Place) -> None:
    """One that this very parent has started."""
    place.worker_gone()
    place.warm()


def _no_worker_known(place: Place) -> None:
    """Until the deaths are recorded."""
    sql = "SELECT 1 FROM generation WHERE state <> 'gone' LIMIT 1"
    wait_until(lambda: not place.store.rows(sql), SLACK_S, "the record of the worker's death")
