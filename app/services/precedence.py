"""Seeing that interactive jobs get a row: rows of lower classes are asked back for them.

An interactive job that was sent to a worker and not accepted, or that still waits here, lacks a
row unless one is free or about to be. For each that does, the row that ``domain/preempting.py``
names is asked back. A worker also takes jobs beyond its rows, which lie ready: when those fill the
places that an interactive job needs to be sent at all, as many are taken back first, at no cost and
uncounted. While jobs lie ready no row is asked back for one that was not sent: they would get it.
"""

from app.domain.job import JobClass
from app.domain.preempting import Row, choose
from app.services.fleet import Worker
from app.services.ledger import LiveJob
from app.services.preemption import Preemption
from app.services.queues import Queues
from shared.ids import JobId


class Precedence:
    """Looks at a worker whenever something about it has changed."""

    def __init__(self, queues: Queues, preemption: Preemption) -> None:
        self._queues = queues
        self._preemption = preemption

    def sent(self, worker: Worker, live: LiveJob) -> None:
        """The job has been sent to this worker."""
        if live.new.job_class is JobClass.INTERACTIVE and len(worker.held) > 1:
            worker.short_of_rows = True
            self.look(worker)

    def look(self, worker: Worker) -> None:
        """Ask rows back for the interactive jobs that lack one."""
        urgent = self._queues.urgent(worker)
        if worker.ready is None or not (urgent or worker.short_of_rows):
            return
        held = list(worker.held.values())
        pending = sum(map(_is_pending, held))
        if not urgent and not pending:
            worker.short_of_rows = False
            return
        in_rows = [live for live in held if live.accepted]
        ready = [live for live in held if live.sent and not live.accepted and _gives_way(live)]
        coming = worker.ready.rows - len(in_rows) + sum(map(_is_leaving, in_rows))
        self._ask_rows(worker, in_rows, pending + (0 if ready else urgent) - coming)
        self._ask_places(ready, urgent - worker.rows_free - sum(map(_is_leaving, held)))

    def _ask_rows(self, worker: Worker, in_rows: list[LiveJob], count: int) -> None:
        for _ in range(count):
            job = choose(self._rows(worker, in_rows), JobClass.INTERACTIVE)
            if job is None:
                return
            self._preemption.request(worker.held[job], counted=True)

    def _ask_places(self, ready: list[LiveJob], count: int) -> None:
        """Take back what lies ready, the job that would get a row last first."""
        ready.sort(key=_last_to_start, reverse=True)
        for live in ready[: max(0, count)]:
            self._preemption.request(live)

    def _rows(self, worker: Worker, in_rows: list[LiveJob]) -> list[Row]:
        kept = self._kept(worker, in_rows)
        return [_row(live, kept=live.id in kept) for live in in_rows]

    def _kept(self, worker: Worker, in_rows: list[LiveJob]) -> set[JobId]:
        """The only row of a class that has waited too long."""
        kept: set[JobId] = set()
        for job_class in (JobClass.BACKGROUND, JobClass.BATCH):
            own = [live for live in in_rows if live.new.job_class is job_class]
            own = [live for live in own if not _is_leaving(live)]
            if len(own) == 1 and self._queues.starves(worker.model, job_class):
                kept.add(own[0].id)
        return kept


def _is_pending(live: LiveJob) -> bool:
    """An interactive job that its worker has been given, and that has no row yet."""
    return live.new.job_class is JobClass.INTERACTIVE and not live.accepted and live.stop is None


def _is_leaving(live: LiveJob) -> bool:
    return live.preempting or live.stop is not None


def _gives_way(live: LiveJob) -> bool:
    return live.new.job_class is not JobClass.INTERACTIVE and not _is_leaving(live)


def _last_to_start(live: LiveJob) -> tuple[int, int]:
    return live.new.job_class.rank, live.run_command or 0


def _row(live: LiveJob, *, kept: bool) -> Row:
    return Row(
        job=live.id,
        job_class=live.new.job_class,
        tokens=live.record.tokens,
        context=live.prompt_tokens + live.output.completion_tokens,
        preemptions=live.preemptions,
        leaving=_is_leaving(live),
        kept=kept,
    )
