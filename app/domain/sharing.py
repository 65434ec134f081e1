"""The waiting jobs of one class of one model, shared between tenants by tokens. Pure.

Order: number (higher first, lifted by age), then the tenant that was served least, then age.

*Shares.* A tenant's account counts tokens: what its jobs were served, and what those that run are
expected to take. The tenant with the smallest sum goes next: deficit round robin with a round of
one job. When an attempt is over, its estimate is replaced by what it was really served. A tenant
that begins to wait starts level with the least *served* of those that are active: nobody saves up
for a burst, and nobody waits until the estimates of others have come true.

*Ageing.* Having waited ``ageing_s`` counts as one number. It lifts a job up to the highest number
that anybody waits with and never past it, so age alone takes no tenant's turn from another.
"""

from bisect import insort
from heapq import heapify, heappop, heappush
from typing import Final

from app.domain.lanes import Lane
from app.domain.tenants import Tenant, Waiting

SLACK: Final = 64
ACCOUNTS_MAX: Final = 10_000
"""Tenants without a job that are remembered for what they had before their turn."""


class SharedQueue:
    """See the module. ``size`` is the number of jobs that wait."""

    def __init__(self, ageing_s: float) -> None:
        self._ageing_s = ageing_s
        self._tenants: dict[str, Tenant] = {}
        self._lanes: list[Lane] = []
        self._levels: list[tuple[int, int, Tenant]] = []
        self._active = 0
        self._numbered = 0
        self._sweep_at = SLACK
        self.size = 0

    @property
    def tenants_waiting(self) -> int:
        """Tenants with a job that waits."""
        return sum(lane.size for lane in self._lanes)

    def push(self, job: Waiting) -> None:
        """Add a job."""
        tenant = self._tenant(job.tenant)
        if not tenant.count:
            self._begins_to_wait(tenant)
        self.size += 1
        if tenant.push(job):
            self._place(tenant)

    def pick(self, now: float, full: set[str]) -> Waiting | None:
        """Take the next job, of a tenant that is not ``full``; its cost is in flight from now."""
        lanes = self._lanes
        if len(lanes) > 1:
            return self._pick_of_many(now, full)
        tenant = lanes[0].first(full) if lanes else None
        return None if tenant is None else self._serve(tenant)

    def remove(self, job: Waiting) -> None:
        """Take out a job that waits."""
        tenant = self._tenants[job.tenant]
        self.size -= 1
        if tenant.remove(job):
            self._place(tenant)
            self._maybe_idle(tenant)

    def begin(self, name: str, cost: int) -> None:
        """A job of this tenant runs without having waited here."""
        tenant = self._tenant(name)
        if not tenant.active:
            self._begins_to_wait(tenant)
        self._account(tenant, in_flight=cost, settled=0)

    def settle(self, name: str, cost: int, served: int) -> None:
        """An attempt is over that was expected to take ``cost`` and was served ``served``."""
        tenant = self._tenants.get(name)
        if tenant is not None:
            self._account(tenant, in_flight=-cost, settled=served)
            self._maybe_idle(tenant)

    def rank(self, job: Waiting) -> int:
        """About how many jobs go before this one: as many of each tenant that waits as of its own,
        which are counted as they came. Costs nothing."""
        tenant = self._tenants[job.tenant]
        ahead = max(0, job.ticket - tenant.head.ticket) if tenant.head is not None else 0
        return min(self.size - 1, min(ahead, tenant.count - 1) * self.tenants_waiting)

    def jobs(self) -> list[Waiting]:
        """All jobs that wait."""
        return [job for tenant in self._tenants.values() for job in tenant.jobs()]

    def rehearsal(self) -> "SharedQueue":
        """A copy to play with."""
        copy = SharedQueue(self._ageing_s)
        for tenant in self._tenants.values():
            twin = copy._tenant(tenant.name)
            twin.settled, twin.in_flight = tenant.settled, tenant.in_flight
            for job in tenant.jobs():
                copy.push(msgspec_replace(job))
        return copy
