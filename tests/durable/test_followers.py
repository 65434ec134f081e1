"""Whoever follows a job sees every event from their number on, once and in order."""

import http.client
import json
import random
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

import pytest

from tests.durable.conftest import NewPlace
from tests.durable.place import Place
from tests.durable.streams import Event, JobStream, events_of, follow, wait_for_events

SEED: Final = 1
FOLLOWERS: Final = 30
LONG: Final = "[[tokens=2600]]"
"""So many events that a job's channel does not keep them all."""


def read(place: Place, job: str, after: int) -> list[Event]:
    """Events of the job after this number."""
    query = "" if after < 0 else f"?starting_after={after}"
    with closing(http.client.HTTPConnection(*place.server.address, timeout=30)) as connection:
        connection.request("GET", f"/v1/jobs/{job}/events{query}")
        return list(events_of(connection.getresponse()))


def assert_whole(events: Sequence[Event]) -> None:
    """All there is of a job."""
    assert [event["seq"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    assert kinds[:3] == ["created", "started", "item_open"]
    assert kinds[-2:] == ["item_close", "ended"]
    assert set(kinds[3:-2]) <= {"text"}


def test_a_follower_that_starts_at_any_number_sees_each_later_event_once(place: Place) -> None:
    """While the job runs and after its end, from its channel and from its journal."""
    chance = random.Random(SEED)
    job = place.submit("[[tokens=120]]")
    whole = JobStream(place, job)
    streams = [whole]
    for _ in range(FOLLOWERS):
        wait_for_events([whole], len(whole.events) + chance.randrange(6))
        streams.append(JobStream(place, job, after=chance.randrange(-1, whole.last + 1)))
    for stream in streams:
        assert stream.finished().events == whole.events[stream.first :]
        assert stream.connections == 1
    assert_whole(whole.events)
    for after in range(-1, whole.last):
        assert read(place, job, after) == whole.events[after + 1 :]


def test_a_follower_of_a_number_to_come_waits_for_the_next(place: Place) -> None:
    job = place.submit("[[tokens=60]]")
    whole = JobStream(place, job)
    ahead = JobStream(place, job, after=20)
    assert ahead.finished().events == whole.finished().events[21:]


def test_whoever_has_the_last_event_gets_no_other(place: Place) -> None:
    job = place.submit("[[tokens=4]]")
    last = JobStream(place, job).finished().last
    assert read(place, job, last) == []
    assert read(place, job, last + 100) == []
    assert [event["type"] for event in read(place, job, last - 1)] == ["ended"]


@pytest.mark.timeout(120)
def test_a_reader_that_stops_reading_for_the_whole_of_a_long_job_misses_nothing(
    new_place: NewPlace,
) -> None:
    place = new_place({"step_s": 0.001})
    place.start()
    job = place.submit(LONG, body={"max_tokens": 2600})
    with closing(slow_connection(place, job)) as connection, connection.makefile("rb") as slow:
        whole = JobStream(place, job).finished()
        assert list(events_on(slow)) == whole.events
    assert_whole(whole.events)
    assert len(whole.events) > 1_024
    late = [JobStream(place, job, after=number) for number in (-1, 0, 499, 500, 501, 1_100)]
    for stream in late:
        assert stream.finished().events == whole.events[stream.first :]


def slow_connection(place: Place, job: str) -> socket.socket:
    """A connection with hardly any buffer, on which the events are asked for."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.settimeout(30)
    connection.connect(place.server.address)
    request = f"GET /v1/jobs/{job}/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    connection.sendall(request.encode())
    return connection


def events_on(lines: Iterator[bytes]) -> Iterator[Event]:
    """The events on a raw connection."""
    for line in lines:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


def test_a_hundred_followers_of_one_job_all_see_all_of_it(place: Place) -> None:
    job = place.submit("[[tokens=80]]")
    first, *others = [stream.finished() for stream in follow(place, [job] * 100)]
    assert_whole(first.events)
    assert all(other.events == first.events for other in others)
