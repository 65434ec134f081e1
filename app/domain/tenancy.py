"""The jobs of one class of one model, shared between tenants by tokens. Pure.

Order: number (higher first, lifted by age), then the tenant that was served least, then age.

*Shares.* A tenant's account counts tokens: ``settled`` were served, ``in_flight`` is what its
running jobs are expected to take; the tenant with the smallest sum goes next, which is deficit
round robin with a round of one job. When an attempt is over, its estimate is replaced by what was
really served. A tenant that begins to wait starts no lower than the least served of those that are
active, so that nobody saves up for a burst; and no higher than what *they* were really served, so
that it need not wait until their estimates have come true.

*Ageing.* Waiting ``ageing_s`` counts as one number. It lifts a job up to the highest number that
anybody waits with and never past it: age alone takes no tenant's turn from another.

A tenant stands in one *lane*, that of its next job's number, or of the higher one its age has
lifted it to. Heaps hold entries that may be out of date; an entry counts while it still says the
truth about its tenant.
"""

from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from app.domain.job import JobClass
from shared.ids import JobId

SLACK: Final = 64
"""Entries out of date that a heap may hold beyond twice its true ones."""

IDLE_ACCOUNTS_MAX: Final = 10_000
"""Tenants without a job that are remembered for what they had too much."""


@dataclass(slots=True, eq=False)
class Waiting:
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


class Tenant:
    """One tenant's waiting jobs, and its account."""

    __slots__ = ("_ageing_s", "_dead", "_lines", "count", "head", "in_flight", "key", "lane")
    __slots__ += ("name", "number", "settled", "tickets")

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
        self._dead = 0
        self._lines: dict[int, deque[Waiting]] = {}

    @property
    def share(self) -> int:
        """Tokens served, or about to be."""
        return self.settled + self.in_flight

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
        if self.head is not None and (self.key, self.head.job) <= (key, job.job):
            return False
        self.head, self.key = job, key
        return True

    def pop(self) -> Waiting:
        """Take the next job."""
        job = self.head
        assert job is not None
        self._lines[job.priority].popleft()
        self.count -= 1
        self._find_head()
        return job

    def remove(self, job: Waiting) -> bool:
        """Take this job out; True when it was the next one."""
        job.removed = True
        self.count -= 1
        self._dead += 1
        if job is self.head:
            self._find_head()
            return True
        if self._dead > self.count + SLACK:
            for line in self._lines.values():
                alive = [other for other in line if not other.removed]
                line.clear()
                line.extend(alive)
            self._dead = 0
        return False

    def jobs(self) -> list[Waiting]:
        """All jobs that wait."""
        return [job for line in self._lines.values() for job in line if not job.removed]

    def _find_head(self) -> None:
        head: Waiting | None = None
        key = 0.0
        for priority, line in list(self._lines.items()):
            while line and line[0].removed:
                line.popleft()
                self._dead -= 1
            if not line:
                del self._lines[priority]
                continue
            first = line[0]
            first_key = first.since - priority * self._ageing_s
            if head is None or (first_key, first.job) < (key, head.job):
                head, key = first, first_key
        self.head, self.key = head, key


def _insert(line: deque[Waiting], job: Waiting) -> None:
    """Keep the line by age. Nearly every job is the youngest; one that comes back is older than
    what waits, so its place is found from the front."""
    if not line or (line[-1].since, line[-1].job) < (job.since, job.job):
        line.append(job)
        return
    at = 0
    for at, other in enumerate(line):  # noqa: B007 - the place is what is looked for
        if (job.since, job.job) < (other.since, other.job):
            break
    line.insert(at, job)


@dataclass(slots=True, eq=False)
class Lane:
    """The tenants that compete with one number."""

    number: int
    size: int = 0
    _by_share: list[tuple[int, float, int, Tenant]] = field(
        default_factory=list[tuple[int, float, int, Tenant]]
    )
    _by_age: list[tuple[float, int, Tenant]] = field(
        default_factory=list[tuple[float, int, Tenant]]
    )

    def enter(self, tenant: Tenant) -> None:
        """This tenant's next job competes here."""
        tenant.lane = self
        self.size += 1
        self.changed(tenant)

    def leave(self, tenant: Tenant) -> None:
        """It does not any more."""
        tenant.lane = None
        self.size -= 1

    def changed(self, tenant: Tenant) -> None:
        """The tenant's account or its next job is another."""
        heappush(self._by_share, _share_entry(tenant))
        heappush(self._by_age, (tenant.key, tenant.number, tenant))
        if len(self._by_age) > 2 * self.size + SLACK:
            self._by_age = [entry for entry in self._by_age if self._ages(entry)]
            heapify(self._by_age)
        if len(self._by_share) > 2 * self.size + SLACK:
            self._by_share = [entry for entry in self._by_share if self._stands(entry)]
            heapify(self._by_share)

    def served(self, tenant: Tenant) -> None:
        """The tenant that ``first`` found was served, and stays."""
        if self._by_share[0][3] is tenant:
            heapreplace(self._by_share, _share_entry(tenant))
            heappush(self._by_age, (tenant.key, tenant.number, tenant))
            if len(self._by_age) > 2 * self.size + SLACK:
                self._by_age = [entry for entry in self._by_age if self._ages(entry)]
                heapify(self._by_age)
        else:
            self.changed(tenant)

    def first(self, full: set[str]) -> Tenant | None:
        """The tenant that was served least, of those that may have another row."""
        heap, passed = self._by_share, list[tuple[int, float, int, Tenant]]()
        found: Tenant | None = None
        while heap:
            entry = heap[0]
            if not self._stands(entry):
                heappop(heap)
            elif full and entry[3].name in full:
                passed.append(heappop(heap))
            else:
                found = entry[3]
                break
        for entry in passed:
            heappush(heap, entry)
        return found

    def aged(self, key_max: float) -> Tenant | None:
        """A tenant whose next job has waited long enough for ``key_max``."""
        heap = self._by_age
        while heap and not self._ages(heap[0]):
            heappop(heap)
        return heap[0][2] if heap and heap[0][0] <= key_max else None

    def _stands(self, entry: tuple[int, float, int, Tenant]) -> bool:
        tenant, head = entry[3], entry[3].head
        return (
            tenant.lane is self
            and tenant.settled + tenant.in_flight == entry[0]
            and head is not None
            and head.since == entry[1]
        )

    def _ages(self, entry: tuple[float, int, Tenant]) -> bool:
        return entry[2].lane is self and entry[2].key == entry[0]


def _share_entry(tenant: Tenant) -> tuple[int, float, int, Tenant]:
    assert tenant.head is not None
    return (tenant.settled + tenant.in_flight, tenant.head.since, tenant.number, tenant)


def insert_lane(lanes: list[Lane], lane: Lane) -> None:
    """Keep lanes by number, the highest first."""
    insort(lanes, lane, key=_descending)


def _descending(lane: Lane) -> int:
    return -lane.number
