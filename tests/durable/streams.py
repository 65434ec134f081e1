"""Readers that follow a job by event number, from one server to the next."""

import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from typing_extensions import override

from tests.durable.place import SLACK_S, Place
from tests.waiting import wait_until

FOLLOW_S: Final = 90.0
QUIET_S: Final = 30.0
"""A stream says something at least this often: there are keep-alives."""

Event = dict[str, Any]


class Misnumbered(AssertionError):
    """A stream said something twice, or left something out."""


class JobStream(threading.Thread):
    """All later events of a job than number ``after``, in order.

    A connection that breaks is made again from the last number on, as long as it takes.
    """

    def __init__(self, place: Place, job: str, after: int = -1) -> None:
        super().__init__(daemon=True, name=f"follow {job}")
        self.job = job
        self.first = after + 1
        self.events: list[Event] = []
        self.connections = 0
        self._place = place
        self._given_up = threading.Event()
        self._wrong: BaseException | None = None
        self._dead: tuple[str, int] | None = None
        self.start()

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self.events[-1]["seq"] if self.events else self.first - 1

    @property
    def text(self) -> str:
        return "".join(event["text"] for event in self.events if event["type"] == "text")

    @property
    def ending(self) -> Event:
        """The event ``ended``, of which there is one, the last."""
        endings = [event for event in self.events if event["type"] == "ended"]
        assert endings == self.events[-1:], self.events[-3:]
        return endings[0]

    @override
    def run(self) -> None:
        try:
            wait_until(self._followed, FOLLOW_S, f"the end of {self.job}'s events")
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._wrong = error

    def give_up(self) -> None:
        """Follow no longer."""
        self._given_up.set()

    def finished(self, timeout: float = FOLLOW_S) -> "JobStream":
        """Wait for the end of it."""
        self.join(timeout)
        if self._wrong is not None:
            raise self._wrong
        assert not self.is_alive(), f"{self.job} has not ended; its last event is {self.last}"
        return self

    def _followed(self) -> bool:
        if self._given_up.is_set():
            return True
        if not self._place.up.wait(1):
            return False
        address = self._place.server.address
        if address == self._dead:
            return False
        try:
            return self._read(address)
        except ConnectionRefusedError:
            self._dead = address  # the next one has another port
        except (OSError, http.client.HTTPException):
            pass
        return False

    def _read(self, address: tuple[str, int]) -> bool:
        with closing(http.client.HTTPConnection(*address, timeout=QUIET_S)) as connection:
            query = f"?starting_after={self.last}" if self.last >= 0 else ""
            connection.request("GET", f"/v1/jobs/{self.job}/events{query}")
            self.connections += 1
            for event in events_of(connection.getresponse()):
                self._take(event)
                if event["type"] == "ended" or self._given_up.is_set():
                    return True
        return False

    def _take(self, event: Event) -> None:
        if event.get("seq") != self.last + 1:
            raise Misnumbered(f"{self.job}: after {self.last} came {event}")
        self.events.append(event)


def events_of(response: http.client.HTTPResponse) -> Iterator[Event]:
    """Events of an answer, until it closes."""
    assert response.status == 200, response.read()
    while line := response.readline():
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


def follow(place: Place, jobs: Sequence[str]) -> list[JobStream]:
    """A stream for each of these."""
    return [JobStream(place, job) for job in jobs]


def wait_for_events(streams: Sequence[JobStream], count: int, timeout: float = SLACK_S) -> None:
    """Until these have so many events together, or all have ended."""

    def there() -> bool:
        seen = sum(len(stream.events) for stream in streams)
        return seen >= count or not any(stream.is_alive() for stream in streams)

    wait_until(there, timeout, f"{count} events")
