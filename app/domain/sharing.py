"""The waiting jobs of one class of one model, shared between tenants by tokens. Pure.

Order: number (higher first, lifted by age), then the tenant that was served least, then age.

*Shares.* A tenant's account counts tokens: what its jobs were served, and what those that run are
expected to take. The tenant with the smallest sum goes next: deficit round robin with a round of
one job. When an attempt is over, its estimate is replaced by what it was really served. A tenant
that begins to wait starts level with the least *served* of those that are active: nobody saves up
for a burst, and nobody waits until the estimates of others have come true.

*Ageing.* Having waited ``ageing_s`` counts as one number. It lifts a job up to the highest number
that anybody waits with and never past it, so age alone takes no tenant's turn from another. Once
lifted a job stays so.
"""

from bisect import insort
from heapq import heapify, heappop, heappush
from typing import Final

from app.domain.lanes import Lane
from app.domain.tenants import Tenant, Waiting

SLACK: Final = 64
"""Levels out of date, and idle accounts, that are kept beyond as many as there are others."""

ACCOUNTS_MAX: Final = 10_000
"""Tenants without a job that are remembered for what they had before their turn."""


class SharedQueue:
    """See the module. ``size`` is the number of jobs that wait, ``tenants_waiting`` of whom."""

    def __init__(self, ageing_s: float) -> None:
        self._ageing_s = ageing_s
        self._tenants: dict[str, Tenant] = {}
        self._lanes: list[Lane] = []
        self._levels: list[tuple[int, int, Tenant]] = []
        self._active = 0
        self._numbered = 0
        self._sweep_at = SLACK
        self.size = 0
        self.tenants_waiting = 0

    def push(self, job: Waiting) -> None:
        """Add a job."""
        tenant = self._tenant(job.tenant)
        idle = not tenant.active
        if idle:
            tenant.settled = max(tenant.settled, self._least_served())
        self._add(tenant, job)
        if idle:
            self._activated(tenant)

    def pick(self, now: float, full: set[str]) -> Waiting | None:
        """Take the next job of a tenant that is not ``full``; its cost is in flight from now on."""
        lanes = self._lanes
        if len(lanes) > 1:
            self._lift_aged(lanes, now, full)
        for lane in lanes:
            tenant = lane.first(full)
            if tenant is not None:
                return self._serve(tenant, lane)
        return None

    def remove(self, job: Waiting) -> None:
        """Take out a job that waits."""
        tenant = self._tenants[job.tenant]
        self.size -= 1
        if tenant.remove(job):
            self._place(tenant)
        if not tenant.count:
            self.tenants_waiting -= 1
            self._maybe_idle(tenant)

    def begin(self, name: str, cost: int) -> None:
        """A job of this tenant runs without having waited."""
        tenant = self._tenant(name)
        idle = not tenant.active
        if idle:
            tenant.settled = max(tenant.settled, self._least_served())
        tenant.in_flight += cost
        self._rekey(tenant)
        if idle:
            self._activated(tenant)

    def settle(self, name: str, cost: int, served: int) -> None:
        """An attempt is over that was expected to take ``cost`` and was served ``served``."""
        tenant = self._tenants.get(name)
        if tenant is None or not tenant.active:
            return
        tenant.in_flight = max(0, tenant.in_flight - cost)
        tenant.settled += served
        self._rekey(tenant)
        if tenant.active:
            self._level(tenant)
        else:
            self._maybe_idle(tenant)

    def rank(self, job: Waiting) -> int:
        """About how many jobs of this class go before this one: as many of every tenant that waits
        as of its own, which are counted as they came. Costs nothing."""
        tenant = self._tenants[job.tenant]
        ahead = job.ticket - tenant.head.ticket if tenant.head is not None else 0
        ahead = max(0, min(ahead, tenant.count - 1))
        return min(self.size - 1, ahead * self.tenants_waiting)

    def counts(self) -> dict[str, int]:
        """How many jobs of each tenant wait."""
        return {name: tenant.count for name, tenant in self._tenants.items() if tenant.count}

    def jobs(self) -> list[Waiting]:
        """All jobs that wait."""
        return [job for tenant in self._tenants.values() for job in tenant.jobs()]

    def copy(self) -> "SharedQueue":
        """The same, to play with; the jobs are copied too."""
        copy = SharedQueue(self._ageing_s)
        for tenant in self._tenants.values():
            twin = copy._tenant(tenant.name)
            twin.settled, twin.in_flight = tenant.settled, tenant.in_flight
            for job in tenant.jobs():
                copy._add(twin, job.copy())
            if tenant.lane is not None:
                copy._move(twin, tenant.lane.number)
            if twin.active:
                copy._activated(twin)
        return copy

    def _add(self, tenant: Tenant, job: Waiting) -> None:
        self.size += 1
        self.tenants_waiting += not tenant.count
        if tenant.push(job):
            self._place(tenant)

    def _serve(self, tenant: Tenant, lane: Lane) -> Waiting:
        job = tenant.head
        assert job is not None, "a lane holds tenants that wait"  # noqa: S101
        tenant.pop(job)
        tenant.in_flight += job.cost
        self.size -= 1
        if tenant.head is not None and tenant.head.priority == lane.number:
            lane.served(tenant)
        else:
            self._place(tenant)
            self.tenants_waiting -= tenant.head is None
        return job

    def _place(self, tenant: Tenant) -> None:
        """Put a tenant whose next job is another into that job's lane."""
        head, lane = tenant.head, tenant.lane
        if lane is not None and head is not None and lane.number == head.priority:
            lane.changed(tenant)
            return
        self._move(tenant, None if head is None else head.priority)

    def _move(self, tenant: Tenant, number: int | None) -> None:
        """Put a tenant into the lane of this number, or into none."""
        lane = tenant.lane
        if lane is not None:
            lane.leave(tenant)
            if not lane.size:
                self._lanes.remove(lane)
        if number is not None:
            self._lane(number).enter(tenant)

    def _lane(self, number: int) -> Lane:
        for lane in self._lanes:
            if lane.number == number:
                return lane
        lane = Lane(number)
        insort(self._lanes, lane, key=_highest_first)
        return lane

    def _lift_aged(self, lanes: list[Lane], now: float, full: set[str]) -> None:
        """Jobs that have waited long enough compete in the highest lane that may be served."""
        top = next((lane for lane in lanes if lane.first(full) is not None), None)
        if top is None:
            return
        key_max = now - top.number * self._ageing_s
        for lane in [lane for lane in lanes if lane.number < top.number]:
            while (tenant := lane.aged(key_max)) is not None:
                lane.leave(tenant)
                top.enter(tenant)
            if not lane.size:
                lanes.remove(lane)

    def _tenant(self, name: str) -> Tenant:
        tenant = self._tenants.get(name)
        if tenant is None:
            if len(self._tenants) >= self._sweep_at:
                self._sweep()
            self._numbered += 1
            tenant = self._tenants[name] = Tenant(name, self._numbered, self._ageing_s)
        return tenant

    def _activated(self, tenant: Tenant) -> None:
        self._active += 1
        self._level(tenant)

    def _rekey(self, tenant: Tenant) -> None:
        if tenant.lane is not None:
            tenant.lane.changed(tenant)

    def _maybe_idle(self, tenant: Tenant) -> None:
        if tenant.active:
            return
        self._active -= 1
        if not self._active:  # nobody is left to be compared with
            self._tenants.clear()
            self._levels.clear()

    def _level(self, tenant: Tenant) -> None:
        heappush(self._levels, (tenant.settled, tenant.number, tenant))
        if len(self._levels) > 2 * self._active + SLACK:
            true = {entry[1]: entry for entry in self._levels if _holds(entry)}
            self._levels = list(true.values())
            heapify(self._levels)

    def _least_served(self) -> int:
        while self._levels and not _holds(self._levels[0]):
            heappop(self._levels)
        return self._levels[0][0] if self._levels else 0

    def _sweep(self) -> None:
        """Forget idle tenants that owe nothing; all of them when they are too many."""
        least = self._least_served()
        for only_even in (True, False):
            for name, tenant in list(self._tenants.items()):
                if not tenant.active and (tenant.settled <= least or not only_even):
                    del self._tenants[name]
            if len(self._tenants) <= self._active + ACCOUNTS_MAX:
                break
        self._sweep_at = 2 * len(self._tenants) + SLACK


def _holds(entry: tuple[int, int, Tenant]) -> bool:
    return entry[2].settled == entry[0] and entry[2].active


def _highest_first(lane: Lane) -> int:
    return -lane.number
