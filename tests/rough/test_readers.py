"""Readers that read nothing for long, while what they read is put together behind them."""

import http.client
import socket
from typing import Any, Final

from tests.durable.place import Place
from tests.durable.streams import events_of, follow
from tests.rough.conftest import Begin
from tests.rough.traces import nothing_stays
from tests.waiting import wait_until

JOINED_SOON: Final = "set app.services.compaction:AFTER_S 0.2"
FAST: Final = {"context_tokens": 100_000}
TOKENS: Final = 3_000
BUFFER_BYTES: Final = 4_096
HAS: Final = 37
"""The number of the last event that a reader comes back with."""


class SlowReader:
    """A connection that takes little at a time: what it does not read waits in the server."""

    def __init__(self, place: Place, job: str, after: int) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self._socket.settimeout(30)
        self._socket.connect(place.server.address)
        path = f"/v1/jobs/{job}/events?starting_after={after}"
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def read(self) -> list[dict[str, Any]]:
        """All events to the end."""
        with self._socket, http.client.HTTPResponse(self._socket) as response:
            response.begin()
            events: list[dict[str, Any]] = []
            for event in events_of(response):
                events.append(event)
                if event["type"] == "ended":
                    break
            return events


def joined(place: Place, jobs: int) -> None:
    """Wait until the journals of so many jobs were put together."""
    wait_until(
        lambda: place.server.metric("journals_joined_total") >= jobs, 20, "the joined journals"
    )


def told(events: list[dict[str, Any]]) -> str:
    return "".join(event["text"] for event in events if event["type"] == "text")


def test_a_reader_at_event_37_that_reads_nothing_goes_on_through_compaction(
    begin: Begin,
) -> None:
    place = begin(JOINED_SOON, f"small-buffers {BUFFER_BYTES}", script=FAST)
    with nothing_stays(place.server):
        job = place.submit(f"[[tokens={TOKENS}]]")
        place.running(job, tokens=100)
        slow = SlowReader(place, job, HAS)
        (quick,) = follow(place, [job])
        place.ended(job)
        quick.finished()
        rows = len(place.chunks(job))
        joined(place, 1)
        assert len(place.chunks(job)) < TOKENS / 100
        assert rows > TOKENS / 2
        events = slow.read()
        assert [event["seq"] for event in events] == list(range(HAS + 1, quick.last + 1))
        assert events == quick.events[HAS + 1 :]
        (again,) = follow(place, [job])
        assert again.finished().events == quick.events
        (item,) = place.job(job)["output"][0]["items"]
        assert item["text"] == quick.text
        assert len(place.tokens(job)) == TOKENS + 1


def test_journals_are_joined_beside_streams_and_by_the_next_server(begin: Begin) -> None:
    place = begin(JOINED_SOON, script={"step_s": 0.005}, settings={"worker.rows": 8})
    early = [place.submit(f"early {n} [[tokens=100]]", n) for n in range(8)]
    before = {job: place.ended(job) for job in early}
    texts = [stream.finished().text for stream in follow(place, early)]
    with nothing_stays(place.server):
        jobs = [place.submit(f"job {n} [[tokens=200]]", n) for n in range(8)]
        streams = follow(place, jobs)
        joined(place, 8)
        for stream in streams:
            assert stream.finished().connections == 1
    assert [stream.finished().text for stream in follow(place, early)] == texts
    assert {job: place.store.job(job) for job in early} == before
    place.kill_parent()
    left = [job for job in jobs if len(place.chunks(job)) > 10]
    place.start(JOINED_SOON)
    joined(place, len(left))
    assert all(len(place.chunks(job)) < 10 for job in jobs)
    assert [len(place.tokens(job)) for job in jobs] == [201] * 8


def test_a_job_that_goes_soon_is_left_in_its_rows(begin: Begin) -> None:
    place = begin(JOINED_SOON, script={"step_s": 0.001}, settings={"retention.jobs_s": 3_000})
    soon = place.submit("[[tokens=50]]")
    place.ended(soon)
    kept = place.submit("[[tokens=50]]", body={"store": False})
    place.ended(kept)
    (stream,) = follow(place, [soon])
    stream.finished()
    place.ended(place.submit("[[tokens=50]]"))
    assert place.server.metric("journals_joined_total") == 0
    assert len(place.chunks(soon)) > 10
