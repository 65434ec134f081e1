"""Jobs that wait for other jobs: held back until those have ended, and what becomes of them then.

The store releases a job in the very commit that ends the last one that it waited for
(``storage/dependencies.py``); here the same is known after that commit, and the job is queued, or
fails with its predecessor. So after a crash in between, the next start finds it available, or finds
the outcome that fails it. While a job waits nothing of its prompt is in memory.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.domain.dependencies import SUCCESSORS_MAX, Verdict, judge
from app.domain.draft import JobDraft
from app.domain.errors import InternalError, InvalidRequest, QueueFull
from app.domain.job import Ending, JobClass, JobState
from app.services.endings import Endings
from app.services.ledger import Ledger, LiveJob
from app.services.returns import Returns
from app.storage.database import Database
from app.storage.dependencies import load_outcomes
from app.storage.rows import JobRow
from shared.ids import JobId

Outcomes = dict[JobId, JobState | None]
Found = dict[tuple[str, JobId], JobState | None]
"""How jobs ended, by tenant and id; None: they have not."""


@dataclass(slots=True, eq=False)
class _Held:
    """A job that waits. ``begun`` once its insert is committed, or known from an earlier start."""

    live: LiveJob
    outcomes: Outcomes
    begun: bool = False


class Dependents:
    """Holds jobs back that wait for others."""

    def __init__(
        self, database: Database, ledger: Ledger, endings: Endings, returns: Returns
    ) -> None:
        self._readers = database.readers
        self._ledger = ledger
        self._endings = endings
        self._returns = returns
        self._held: dict[JobId, _Held] = {}
        self._successors: dict[JobId, dict[JobId, None]] = {}
        self._classes: Counter[JobClass] = Counter()
        endings.on_ended.append(self._ended)

    def __len__(self) -> int:
        return len(self._held)

    def of_class(self, job_class: JobClass) -> int:
        """How many jobs of this class wait for others."""
        return self._classes[job_class]

    async def look_up(self, drafts: Sequence[JobDraft]) -> Found:
        """How everything that these drafts wait for has ended, None for what is open. Those that
        are not there, or of another tenant, are left out. True until the caller awaits anything
        else.
        """
        wanted = {(draft.tenant, job): None for draft in drafts for job in draft.after}
        found = await self._load(wanted)
        before, ended = [], self._ended_meanwhile(found)
        while ended and ended != before:
            found.update(await self._load(ended))
            before, ended = ended, self._ended_meanwhile(found)
        if ended:
            raise InternalError  # still open on disk, and unknown here
        return found

    async def _load(self, wanted: Iterable[tuple[str, JobId]]) -> Found:
        tenants: dict[str, list[JobId]] = {}
        for tenant, job in wanted:
            tenants.setdefault(tenant, []).append(job)
        return {
            (tenant, job): outcome
            for tenant, jobs in tenants.items()
            for job, outcome in (await load_outcomes(self._readers, tenant, jobs)).items()
        }

    def _ended_meanwhile(self, found: Found) -> list[tuple[str, JobId]]:
        """What was open when it was looked up, and is so no more."""
        return [of for of, outcome in found.items() if not outcome and not self._ledger.get(of[1])]

    def check(self, draft: JobDraft, found: Found, also: Counter[JobId]) -> None:
        """Refuse a draft that waits for what is not there, or for what too many wait for; ``also``
        are those that come with it, and it is counted there.

        Raises:
            InvalidRequest: one is not there; ``param`` is its place in ``after``.
            QueueFull: too many jobs wait for one of them.
        """
        for n, job in enumerate(draft.after):
            param = f"after[{n}]"
            if (draft.tenant, job) not in found:
                raise not_there(job, param)
            also[job] += 1
            if len(self._successors.get(job, ())) + also[job] > SUCCESSORS_MAX:
                text = f"{SUCCESSORS_MAX} jobs wait for {job} already; submit after some have ended"
                raise QueueFull(f"{text}, or let this one wait for one of those.", param=param)

    def take(self, live: LiveJob, found: Found) -> None:
        """A new job waits for those that it names and that have not ended."""
        self._hold(live, {job: found[live.new.tenant, job] for job in live.new.after})

    def _hold(self, live: LiveJob, own: Outcomes) -> None:
        self._held[live.id] = _Held(live, own)
        self._classes[live.new.job_class] += 1
        live.awaits = frozenset(job for job, outcome in own.items() if outcome is None)
        for job in live.awaits:
            self._successors.setdefault(job, {})[live.id] = None
            if (predecessor := self._ledger.get(job)) is not None:
                predecessor.followed = True

    def adopt(self, live: LiveJob, row: JobRow) -> None:
        """A job of an earlier start: held back if anything still does. All of them are adopted
        before any job can end."""
        waits = live.state is JobState.SCHEDULED and bool(row.after)
        if waits and judge(row.after, row.new.on_failure) is not Verdict.RUN:
            self._hold(live, row.after)

    def begin(self, live: LiveJob) -> None:
        """The job is recorded: from now on it may be released, or fail."""
        held = self._held.get(live.id)
        if held is not None:
            held.begun = True
            self._decide(held)

    def forget(self, live: LiveJob) -> None:
        """The job waits no more."""
        held = self._held.pop(live.id, None)
        if held is None:
            return
        self._classes[live.new.job_class] -= 1
        for job in live.awaits:
            successors = self._successors.get(job, {})
            successors.pop(live.id, None)
            if not successors:
                self._successors.pop(job, None)
        live.awaits = frozenset()

    def _ended(self, live: LiveJob, ending: Ending) -> None:
        self.forget(live)
        for successor in self._successors.pop(live.id, {}):
            held = self._held[successor]
            held.outcomes[live.id] = ending.state
            held.live.awaits -= {live.id}
            if held.begun:
                self._decide(held)

    def _decide(self, held: _Held) -> None:
        live = held.live
        if live.state is not JobState.SCHEDULED:
            return
        verdict = judge(held.outcomes, live.new.on_failure)
        if verdict is Verdict.WAIT:
            return
        self.forget(live)
        if verdict is Verdict.RUN:
            self._returns.released(live)
        else:
            self._endings.end_waiting(live, JobState.FAILED, verdict)


def not_there(job: str, param: str) -> InvalidRequest:
    """The refusal of a job that waits for one that is not there."""
    text = f"There is no job {job} to wait for: name jobs that were submitted and are still kept."
    return InvalidRequest(f"Invalid '{param}': {text}", param=param)
