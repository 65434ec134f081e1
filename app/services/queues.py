"""The jobs that wait, per model, in fair order; and what each tenant has been given.

A job that is suspected of killing its worker runs alone (``domain/poison.py``). It waits beside the
queue, goes first when the worker holds nothing, and while it has not got further nothing else is
claimed. When it has waited for ``starve_s``, no other job is claimed until its worker is empty.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from app.domain.fairness import FairQueue, Held
from app.domain.job import JobClass
from app.domain.tenants import Waiting
from app.services.clock import Clock
from app.services.fleet import Worker
from app.services.ledger import LiveJob
from app.settings import QueueSettings
from shared.ids import JobId


class Queues:
    """Decides which job goes next, in memory: there is one dispatcher."""

    def __init__(self, clock: Clock, settings: QueueSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._fair: defaultdict[str, FairQueue] = defaultdict(self._new_queue)
        self._suspects: defaultdict[str, dict[JobId, float]] = defaultdict(dict)
        self._live: dict[JobId, LiveJob] = {}
        self._classes: dict[JobClass, int] = dict.fromkeys(JobClass, 0)
        self._tenants: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, live: LiveJob) -> bool:
        return live.id in self._live

    def push(self, live: LiveJob) -> None:
        """The job waits from now on; one that does already keeps its place."""
        if live in self:
            return
        now = self._clock.monotonic()
        if live.since is None:
            live.since = now
        self._live[live.id] = live
        self._classes[live.new.job_class] += 1
        self._tenants[live.new.tenant] += 1
        if live.record.alone:
            self._suspects[live.new.model][live.id] = now
        else:
            self._fair[live.new.model].push(_waiting(live, live.since), now)

    def admits(self, live: LiveJob, worker: Worker) -> bool:
        """Whether a job that has just come may be claimed without waiting."""
        model, new = worker.model, live.new
        if not worker.rows_free or self._fair[model] or self._suspects[model]:
            return False
        if self.runs_alone(worker):
            return False
        if _reserved(worker) and new.job_class is not JobClass.INTERACTIVE:
            return False
        limit = self._settings.tenant_rows_max
        return not limit or new.tenant not in self.held(worker).full

    def waits_for(self, model: str) -> bool:
        """Whether any job of this model waits."""
        return bool(self._fair[model]) or bool(self._suspects[model])

    def held(self, worker: Worker) -> Held:
        """What the worker holds, by tenant and class."""
        lives = worker.held.values()
        return Held(
            rows_max=self._settings.tenant_rows_max,
            running=lambda: [(live.new.tenant, live.new.job_class) for live in lives],
        )

    def take(self, worker: Worker, held: Held) -> LiveJob | None:
        """The job to claim next for this worker; None when there is none, or no room for it. The
        caller claims it before it asks again, with the same ``held``."""
        if not worker.rows_free or self.runs_alone(worker):
            return None
        now = self._clock.monotonic()
        suspects = self._suspects[worker.model]
        if suspects:
            first = next(iter(suspects))
            if not worker.held:
                return self._handed_out(first)
            if now - suspects[first] >= self._settings.starve_s:
                return None
        queue = self._fair[worker.model]
        job = queue.pick(now, held, reserved=_reserved(worker)) if queue else None
        if job is None:
            return None
        held.add(job.tenant, job.job_class)
        live = self._gone(job.job)
        live.charged = job.cost
        return live

    def take_this(self, live: LiveJob) -> None:
        """Take this job out to claim it before its turn."""
        if live in self:
            self._handed_out(live.id)

    def begin(self, live: LiveJob) -> None:
        """The job is claimed without having waited."""
        live.charged = _cost(live)
        self._fair[live.new.model].begin(live.new.job_class, live.new.tenant, live.charged)

    def settle(self, live: LiveJob) -> None:
        """The job's attempt is over: its tenant has been given what was really served."""
        if live.charged:
            queue, cost = self._fair[live.new.model], live.charged
            live.charged = 0
            queue.settle(live.new.job_class, live.new.tenant, cost, live.attempt_served)

    def withdraw(self, live: LiveJob) -> bool:
        """Take a job out; False when it does not wait."""
        if live not in self:
            return False
        self._fair[live.new.model].remove(live.id)
        self._gone(live.id)
        return True

    def runs_alone(self, worker: Worker) -> bool:
        """Whether the worker has a job beside which nothing may run: then it has no other."""
        if len(worker.held) != 1:
            return False
        return next(iter(worker.held.values())).record.needs_solitude

    def starves(self, model: str, job_class: JobClass) -> bool:
        """Whether the class has waited so long that it keeps a row."""
        return self._fair[model].starves(job_class, self._clock.monotonic())

    def urgent(self, worker: Worker) -> int:
        """Interactive jobs that wait for this worker and that no limit of their tenant stops."""
        queue = self._fair[worker.model]
        if not queue.waiting_of(JobClass.INTERACTIVE):
            return 0
        return queue.waiting_within(JobClass.INTERACTIVE, self.held(worker))

    def of_model(self, model: str) -> Iterator[LiveJob]:
        """The jobs of this model that wait, as they came."""
        jobs = [*self._suspects[model], *self._fair[model]]
        return iter([self._live[job] for job in jobs])

    def of_class(self, job_class: JobClass) -> int:
        """How many jobs of this class wait, of all models."""
        return self._classes[job_class]

    def of_tenant(self, tenant: str) -> int:
        """How many jobs of this tenant wait, of all models and classes."""
        return self._tenants[tenant]

    def models(self) -> list[str]:
        """Models that jobs wait for."""
        return [model for model in {**self._fair, **self._suspects} if self.waits_for(model)]

    def position(self, live: LiveJob) -> int | None:
        """How many jobs go before this one; None when it does not wait."""
        suspects = self._suspects[live.new.model]
        if live.id in suspects:
            return list(suspects).index(live.id)
        position = self._fair[live.new.model].position(live.id, self._clock.monotonic())
        return None if position is None else position + len(suspects)

    def _new_queue(self) -> FairQueue:
        return FairQueue(ageing_s=self._settings.ageing_s, starve_s=self._settings.starve_s)

    def _handed_out(self, job: JobId) -> LiveJob:
        live = self._live[job]
        self.withdraw(live)
        self.begin(live)
        return live

    def _gone(self, job: JobId) -> LiveJob:
        live = self._live.pop(job)
        new = live.new
        self._suspects[new.model].pop(job, None)
        self._classes[new.job_class] -= 1
        self._tenants[new.tenant] -= 1
        if not self._tenants[new.tenant]:
            del self._tenants[new.tenant]
        return live


def _reserved(worker: Worker) -> bool:
    """Whether the room left is the one place beyond the rows that is kept for interactive jobs: so
    they need not wait until a job that only lies ready has been taken back."""
    ready = worker.ready
    return ready is not None and worker.rows_free == 1 and len(worker.held) >= ready.rows


def _waiting(live: LiveJob, since: float) -> Waiting:
    new = live.new
    return Waiting(new.id, new.job_class, new.priority, new.tenant, _cost(live), since)


def _cost(live: LiveJob) -> int:
    """Tokens that the job is still expected to take."""
    return max(1, live.cost - live.output.completion_tokens) if live.attempt else live.cost
