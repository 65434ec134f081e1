"""The tenants that compete with one number. Pure.

Both heaps may hold entries that are out of date; an entry counts while it still says the truth
about its tenant, and there is one such entry a tenant in each.
"""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from app.domain.tenants import Tenant

SLACK: Final = 64
"""Entries out of date that a heap may hold, beyond as many as there are true ones."""

_Share = tuple[int, float, int, Tenant]
_Age = tuple[float, int, Tenant]


@dataclass(slots=True, eq=False)
class Lane:
    """Tenants whose next job has this number, or was lifted to it by its age: by what they were
    served (then by the age of that job), and by how long it has waited."""

    number: int
    size: int = 0
    _by_share: list[_Share] = field(default_factory=list[_Share])
    _by_age: list[_Age] = field(default_factory=list[_Age])

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
        heappush(self._by_share, _share(tenant))
        if len(self._by_share) > 2 * self.size + SLACK:
            true = {entry[2]: entry for entry in self._by_share if self._shares(entry)}
            self._by_share = list(true.values())
            heapify(self._by_share)
        self._age_changed(tenant)

    def served(self, tenant: Tenant) -> None:
        """The tenant that ``first`` found was served, and stays."""
        if self._by_share[0][3] is tenant:
            heapreplace(self._by_share, _share(tenant))
            self._age_changed(tenant)
        else:
            self.changed(tenant)

    def first(self, full: set[str]) -> Tenant | None:
        """The tenant that was served least, of those that may have another row."""
        heap = self._by_share
        while heap and not self._shares(heap[0]):
            heappop(heap)
        if not heap:
            return None
        return self._first_not_full(full) if full else heap[0][3]

    def _first_not_full(self, full: set[str]) -> Tenant | None:
        heap, passed = self._by_share, list[_Share]()
        while heap and (not self._shares(heap[0]) or heap[0][3].name in full):
            entry = heappop(heap)
            if self._shares(entry):
                passed.append(entry)
        found = heap[0][3] if heap else None
        for entry in passed:
            heappush(heap, entry)
        return found

    def aged(self, key_max: float) -> Tenant | None:
        """The tenant whose next job has waited longest, if that is long enough."""
        heap = self._by_age
        while heap and not self._ages(heap[0]):
            heappop(heap)
        return heap[0][2] if heap and heap[0][0] <= key_max else None

    def _age_changed(self, tenant: Tenant) -> None:
        heappush(self._by_age, (tenant.key, tenant.number, tenant))
        if len(self._by_age) > 2 * self.size + SLACK:
            true = {entry[1]: entry for entry in self._by_age if self._ages(entry)}
            self._by_age = list(true.values())
            heapify(self._by_age)

    def _shares(self, entry: _Share) -> bool:
        tenant = entry[3]
        return (
            tenant.lane is self
            and tenant.settled + tenant.in_flight == entry[0]
            and tenant.head is not None
            and tenant.head.since == entry[1]
        )

    def _ages(self, entry: _Age) -> bool:
        return entry[2].lane is self and entry[2].key == entry[0]


def _share(tenant: Tenant) -> _Share:
    assert tenant.head is not None, "a tenant competes with a job"  # noqa: S101
    return (tenant.settled + tenant.in_flight, tenant.head.since, tenant.number, tenant)
