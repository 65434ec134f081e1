"""One tenant's waiting jobs of one class and model, in order, and its account. Pure.

A tenant's jobs go by number, lifted by age, then by age: the smallest ``since - priority x
ageing_s`` first, an order that time does not change.
"""

from bisect import insort
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from app.domain.job import JobClass
from shared.ids import JobId

if TYPE_CHECKING:
    from app.domain.lanes import Lane

SLACK: Final = 64
"""Removed jobs that may still take memory, beyond as many as there are others."""


class Waiting(msgspec.Struct, eq=False):
    """A job that waits. ``cost`` is what it is expected to take, in tokens; ``since`` when its
    waiting began, in monotonic seconds. ``ticket`` and ``removed`` are its tenant's."""

    job: JobId
    job_class: JobClass
    priority: int
    tenant: str
    cost: int
    since: float
    ticket: int = 0
    removed: bool = False

    def copy(self) -> "Waiting":
        """The same job, in no queue."""
        return Waiting(self.job, self.job_class, self.priority, self.tenant, self.cost, self.since)


class Tenant:
    """Jobs, and tokens: ``settled`` were served, ``in_flight`` is what running jobs are expected
    to take. ``head`` is the next job, ``key`` its place in time; ``lane`` is where it competes."""

    __slots__ = (
        "_ageing_s",
        "_lines",
        "_removed",
        "count",
        "head",
        "in_flight",
        "key",
        "lane",
        "name",
        "number",
        "settled",
        "tickets",
    )

    def __init__(self, name: str, number: int, ageing_s: float) -> None:
        self.name = name
        self.number = number
        self.settled = 0
        self.in_flight = 0
        self.count = 0
        self.tickets = 0
        self.head: Waiting | None = None
        self.key = 0.0
        self.lane: Lane | None = None
        self._ageing_s = ageing_s
        self._removed = 0
        self._lines: dict[int, deque[Waiting]] = {}

    @property
    def active(self) -> bool:
        """Whether it has a job that waits or runs."""
        return self.count > 0 or self.in_flight > 0

    def push(self, job: Waiting) -> bool:
        """Add a job; True when it is the next one now."""
        line = self._lines.get(job.priority)
        if line is None:
            line = self._lines[job.priority] = deque()
        _insert(line, job)
        job.ticket = self.tickets
        self.tickets += 1
        self.count += 1
        key = job.since - job.priority * self._ageing_s
        if self.head is not None and (self.key, self.head.job) < (key, job.job):
            return False
        self.head, self.key = job, key
        return True

    def pop(self, head: Waiting) -> None:
        """Take the next job."""
        line = self._lines[head.priority]
        line.popleft()
        self.count -= 1
        if len(self._lines) == 1 and line and not line[0].removed:
            self.head = line[0]
            self.key = line[0].since - head.priority * self._ageing_s
        else:
            self._find_head()

    def remove(self, job: Waiting) -> bool:
        """Take this job out; True when it was the next one."""
        job.removed = True
        self.count -= 1
        self._removed += 1
        if job is self.head:
            self._find_head()
            return True
        if self._removed > self.count + SLACK:
            self._forget_removed()
        return False

    def jobs(self) -> list[Waiting]:
        """All jobs that wait, those of one number by age."""
        return [job for line in self._lines.values() for job in line if not job.removed]

    def _find_head(self) -> None:
        self.head, self.key = None, 0.0
        for priority, line in list(self._lines.items()):
            while line and line[0].removed:
                line.popleft()
                self._removed -= 1
            if not line:
                del self._lines[priority]
                continue
            first = line[0]
            key = first.since - priority * self._ageing_s
            if self.head is None or (key, first.job) < (self.key, self.head.job):
                self.head, self.key = first, key

    def _forget_removed(self) -> None:
        for line in self._lines.values():
            left = [job for job in line if not job.removed]
            line.clear()
            line.extend(left)
        self._removed = 0


def _insert(line: deque[Waiting], job: Waiting) -> None:
    """Keep the line by age. Nearly every job is its youngest, and one that comes back nearly its
    oldest; only between them inserting is slow."""
    if not line or _age(line[-1]) < _age(job):
        line.append(job)
    else:
        insort(line, job, key=_age)


def _age(job: Waiting) -> tuple[float, JobId]:
    return (job.since, job.job)
