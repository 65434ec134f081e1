"""Which waiting job of a model goes next. Pure: the caller gives the time and what runs.

Class first (interactive, background, batch); ``sharing`` says who goes next inside one. A tenant
may have a limit on its rows; its other jobs then wait while those of others pass.

*The floor.* A lower class that has waited ``starve_s`` without having had a turn of its own keeps
``floor_share`` of the tokens, a row at a time, until nothing of it waits or its turn comes: it is
owed a row while it holds none and what it was given is worked off. What it gets is charged to its
``credit``, which the tokens of the other classes work off again.

The dispatcher is the only one who takes from it, so a job is handed out once.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from app.domain.job import JobClass
from app.domain.sharing import SharedQueue
from app.domain.tenants import Waiting
from shared.ids import JobId

CHARS_PER_TOKEN: Final = 4
COMPLETION_TOKENS: Final = 512
"""Expected of a request that names no ``max_tokens``."""

EXACT_MAX: Final = 1_000
"""Up to so many waiting jobs a position is counted by playing the queue through."""

EXACT_ALWAYS_MAX: Final = 8
PLAY_S: Final = 0.0005
"""Per job that waits: above ``EXACT_ALWAYS_MAX`` the queue is played no more often than this."""


def estimate(chars: int, max_tokens: int | None) -> int:
    """Tokens that a request is expected to take, before anybody has counted its prompt."""
    completion = COMPLETION_TOKENS if max_tokens is None else max_tokens
    return max(1, chars // CHARS_PER_TOKEN + completion)


class Held:
    """Jobs that the model's worker holds, by tenant and class.

    Args:
        rows_max: how many of a tenant there may be; 0 is any number.
        running: tells tenant and class of each that is held already. It is asked once somebody
            wants to know, which in most rounds nobody does: by then it tells of those that were
            added before, too.
    """

    __slots__ = ("_classes", "_full", "_running", "_tenants", "rows_max")

    def __init__(
        self,
        *,
        rows_max: int = 0,
        running: Callable[[], Iterable[tuple[str, JobClass]]] | None = None,
    ) -> None:
        self.rows_max = rows_max
        self._running = running
        self._tenants: dict[str, int] = {}
        self._classes: dict[JobClass, int] = {}
        self._full: set[str] = set()

    def add(self, tenant: str, job_class: JobClass) -> None:
        """One more job is held."""
        if self._running is None:
            self._add(tenant, job_class)

    def of_tenant(self, tenant: str) -> int:
        """How many jobs of this tenant are held."""
        self._count()
        return self._tenants.get(tenant, 0)

    def of_class(self, job_class: JobClass) -> int:
        """How many jobs of this class are held."""
        self._count()
        return self._classes.get(job_class, 0)

    @property
    def full(self) -> set[str]:
        """Tenants that may have no more rows."""
        if self.rows_max:
            self._count()
        return self._full

    def _count(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            for tenant, job_class in running():
                self._add(tenant, job_class)

    def _add(self, tenant: str, job_class: JobClass) -> None:
        count = self._tenants[tenant] = self._tenants.get(tenant, 0) + 1
        self._classes[job_class] = self._classes.get(job_class, 0) + 1
        if self.rows_max and count >= self.rows_max:
            self._full.add(tenant)


@dataclass(slots=True)
class _Class:
    """One class. ``since`` is when it began to wait for a turn of its own; ``credit`` is 0, or
    less by what it was given beside its turn."""

    kind: JobClass
    shared: SharedQueue
    since: float = 0.0
    credit: float = 0.0


class FairQueue:
    """The waiting jobs of one model. Times are monotonic seconds."""

    def __init__(
        self, *, ageing_s: float = 60.0, starve_s: float = 60.0, floor_share: float = 0.05
    ) -> None:
        self._ageing_s = ageing_s
        self._starve_s = starve_s
        self._floor_share = floor_share
        self._classes = {kind: _Class(kind, SharedQueue(ageing_s)) for kind in JobClass}
        self._jobs: dict[JobId, Waiting] = {}
        self._order: dict[JobId, int] | None = None
        self._play_at = 0.0
        self._in_debt = False

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: JobId) -> bool:
        return job in self._jobs

    def __iter__(self) -> Iterator[JobId]:
        """As they came."""
        return iter(list(self._jobs))

    def waiting_of(self, job_class: JobClass) -> int:
        """How many jobs of this class wait."""
        return self._classes[job_class].shared.size

    def waiting_within(self, job_class: JobClass, held: Held) -> int:
        """How many jobs of this class wait that no limit of their tenant stops."""
        shared = self._classes[job_class].shared
        if not held.rows_max:
            return shared.size
        counts = shared.counts()
        room = {tenant: held.rows_max - held.of_tenant(tenant) for tenant in counts}
        return sum(min(count, max(0, room[tenant])) for tenant, count in counts.items())

    def push(self, job: Waiting, now: float) -> None:
        """A job waits; one that does already keeps its place."""
        if job.job in self._jobs:
            return
        self._jobs[job.job] = job
        self._order = None
        own = self._classes[job.job_class]
        if not own.shared.size:
            own.since = now
        own.shared.push(job)

    def pick(self, now: float, held: Held, *, reserved: bool = False) -> Waiting | None:
        """Take the job that goes next; its tenant is charged what it is expected to take.

        With ``reserved`` only interactive jobs are taken, and what the floor owes.
        """
        waiting = [own for own in self._classes.values() if own.shared.size]
        if reserved or len(waiting) > 1:
            job = self._pick_owed(waiting, now, held, reserved=reserved)
            if job is not None:
                return self._picked(job)
        for own in waiting:
            if reserved and own.kind is not JobClass.INTERACTIVE:
                break
            job = own.shared.pick(now, held.full)
            if job is not None:
                own.since = now
                return self._picked(job)
        return None

    def remove(self, job: JobId) -> bool:
        """Take this job out, wherever it stands; False when it does not wait here."""
        waiting = self._jobs.pop(job, None)
        if waiting is None:
            return False
        self._order = None
        self._classes[waiting.job_class].shared.remove(waiting)
        return True

    def begin(self, job_class: JobClass, tenant: str, cost: int) -> None:
        """A job that did not wait here is handed out."""
        self._order = None
        self._classes[job_class].shared.begin(tenant, cost)
        if self._in_debt:
            self._work_off(job_class, cost)

    def settle(self, job_class: JobClass, tenant: str, cost: int, served: int) -> None:
        """The attempt of a job that was handed out is over: what was expected is replaced by the
        tokens that were really served."""
        self._order = None
        own = self._classes[job_class]
        own.shared.settle(tenant, cost, served)
        if self._in_debt:
            own.credit = min(0.0, own.credit + cost - served) if own.credit else 0.0
            self._work_off(job_class, served - cost)

    def starves(self, job_class: JobClass, now: float) -> bool:
        """Whether this class has waited so long that it keeps a row."""
        own = self._classes[job_class]
        return own.shared.size > 0 and now - own.since >= self._starve_s

    def position(self, job: JobId, now: float) -> int | None:
        """How many jobs go before this one, as things stand: if rows came free one after the other
        and all estimates were true. None when it does not wait here.

        Above ``EXACT_MAX`` waiting jobs, and for a moment after each change of a long queue, it is
        an estimate: the classes before, and ``SharedQueue.rank``.
        """
        waiting = self._jobs.get(job)
        if waiting is None:
            return None
        if self._order is None and self._may_play(now):
            self._order = self._played(now)
        if self._order is not None:
            return self._order[job]
        before = sum(self.waiting_of(k) for k in JobClass if k.rank < waiting.job_class.rank)
        return before + self._classes[waiting.job_class].shared.rank(waiting)

    def _may_play(self, now: float) -> bool:
        count = len(self._jobs)
        if count > EXACT_MAX or (count > EXACT_ALWAYS_MAX and now < self._play_at):
            return False
        self._play_at = now + count * PLAY_S
        return True

    def _played(self, now: float) -> dict[JobId, int]:
        copy = FairQueue(
            ageing_s=self._ageing_s, starve_s=self._starve_s, floor_share=self._floor_share
        )
        for kind, own in self._classes.items():
            copy._classes[kind] = _Class(kind, own.shared.copy(), own.since, own.credit)
        copy._jobs = dict(self._jobs)
        copy._in_debt = self._in_debt
        order: dict[JobId, int] = {}
        nothing = Held()
        while (job := copy.pick(now, nothing)) is not None:
            order[job.job] = len(order)
        return order

    def _pick_owed(
        self, waiting: list[_Class], now: float, held: Held, *, reserved: bool
    ) -> Waiting | None:
        """What goes before its turn. The first class that waits has its turn anyway."""
        for own in waiting if reserved else waiting[1:]:
            if own.kind is JobClass.INTERACTIVE or own.credit < 0:
                continue
            if now - own.since >= self._starve_s and not held.of_class(own.kind):
                job = own.shared.pick(now, held.full)
                if job is not None:
                    own.credit -= job.cost
                    self._in_debt = True
                    return job
        return None

    def _picked(self, job: Waiting) -> Waiting:
        del self._jobs[job.job]
        self._order = None
        if self._in_debt:
            self._work_off(job.job_class, job.cost)
        return job

    def _work_off(self, served: JobClass, tokens: int) -> None:
        """Tokens of one class work off what the others were given."""
        for own in self._classes.values():
            if own.credit < 0 and own.kind is not served:
                own.credit = min(0.0, own.credit + self._floor_share * tokens)
        self._in_debt = any(own.credit < 0 for own in self._classes.values())
