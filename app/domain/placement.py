"""Which waiting job goes next. Pure: no clock, no I/O.

Class first, then number (higher first), then age. One queue per model; the dispatcher is the only
one who takes from it, so a job is handed out once.
"""

from bisect import insort
from collections.abc import Iterator

import msgspec

from app.domain.job import JobClass
from shared.ids import JobId


class Place(msgspec.Struct, frozen=True, order=True, gc=False):
    """A job's place in its model's queue: smaller goes first. Ids sort by age."""

    rank: int
    minus_priority: int
    job: JobId


def place_of(job: JobId, job_class: JobClass, priority: int) -> Place:
    """The place a job takes by its class, priority and age."""
    return Place(job_class.rank, -priority, job)


class WaitingQueue:
    """Jobs of one model that wait for a row, in order."""

    __slots__ = ("_order", "_places")

    def __init__(self) -> None:
        self._order: list[Place] = []
        self._places: dict[JobId, Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[JobId]:
        return iter([place.job for place in self._order])

    def push(self, place: Place) -> None:
        """Put a job in its place; one that waits already keeps it."""
        if place.job not in self._places:
            self._places[place.job] = place
            insort(self._order, place)

    def pop(self, count: int) -> list[JobId]:
        """Take up to ``count`` jobs from the front."""
        taken, self._order = self._order[:count], self._order[count:]
        for place in taken:
            del self._places[place.job]
        return [place.job for place in taken]

    def remove(self, job: JobId) -> bool:
        """Take this job out, wherever it stands; False when it does not wait here."""
        place = self._places.pop(job, None)
        if place is None:
            return False
        self._order.remove(place)
        return True

    def position(self, job: JobId) -> int | None:
        """How many jobs go before this one; None when it does not wait here."""
        place = self._places.get(job)
        return None if place is None else self._order.index(place)
