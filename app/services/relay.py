"""The dispatcher: claims waiting jobs for workers with room, and sends them once that is committed.

One dispatcher, so claims are decided in memory. A claim rides in the commit of the job's own insert
where a row is free at submission; otherwise it is an operation of its own. ``RunJob`` leaves only
after the commit that holds the claim and the command's row. Nothing polls: the relay is pumped when
a job arrives, when credit grows and when a worker becomes ready.
"""

from collections import defaultdict
from functools import partial
from itertools import count

import structlog

from app.dispatch.bodies import run_job_messages
from app.domain.job import Claim, JobState
from app.domain.placement import WaitingQueue, place_of
from app.domain.transitions import JobEvent, next_state
from app.services.clock import Clock
from app.services.fleet import Fleet, Worker
from app.services.ledger import LiveJob
from app.storage.jobs import claim_job, insert_job
from app.storage.operations import Committed, Operation
from app.storage.writer import OutcomeFuture, Writer
from shared.ids import CommandId, StoreId
from shared.messages import RunJob

_log = structlog.get_logger("relay")


class Relay:
    """Waiting queues per model, and the way from them to a worker.

    Args:
        first_command: the lowest command number this parent may use.
    """

    def __init__(
        self,
        fleet: Fleet,
        writer: Writer,
        clock: Clock,
        epoch: int,
        store: StoreId,
        first_command: int,
    ) -> None:
        self._fleet = fleet
        self._writer = writer
        self._clock = clock
        self._epoch = epoch
        self._store = store
        self._commands = count(first_command)
        self._waiting: defaultdict[str, WaitingQueue] = defaultdict(WaitingQueue)
        self._live: dict[str, LiveJob] = {}

    def admit(self, live: LiveJob) -> Operation:
        """The operation that inserts this job, with its claim where a row is free now."""
        worker = self._fleet.serving(live.new.model)
        queue = self._waiting[live.new.model]
        if worker is None or len(queue) or not worker.rows_free:
            self._wait(live)
            return insert_job(live.new, None, None)
        claim = self._claim(live, worker)
        return insert_job(live.new, claim, live.run_command)

    def inserted(self, live: LiveJob) -> None:
        """The job's insert is committed: send it, or see whether it can be claimed now."""
        if live.state is JobState.RUNNING:
            live.claimed = True
            self._send(live)
        else:
            self.pump(live.new.model)

    def pump(self, model: str) -> None:
        """Claim as many waiting jobs of this model as its worker has room for."""
        worker = self._fleet.serving(model)
        queue = self._waiting.get(model)
        if worker is None or not queue:
            return
        for job in queue.pop(worker.rows_free):
            self._claim_waiting(self._live.pop(job), worker)

    def withdraw(self, live: LiveJob) -> bool:
        """Take a job out of its queue; False when it does not wait."""
        if not self._waiting[live.new.model].remove(live.id):
            return False
        del self._live[live.id]
        return True

    def waiting(self, model: str) -> list[LiveJob]:
        """The jobs of this model that wait, in order."""
        queue = self._waiting.get(model)
        return [self._live[job] for job in queue] if queue else []

    def waiting_count(self) -> int:
        """How many jobs wait, of all models."""
        return len(self._live)

    def waiting_models(self) -> list[str]:
        """Models that jobs wait for."""
        return [model for model, queue in self._waiting.items() if len(queue)]

    def position(self, live: LiveJob) -> int | None:
        """How many jobs go before this one; None when it does not wait."""
        return self._waiting[live.new.model].position(live.id)

    def next_command(self) -> CommandId:
        """A command number, higher than any before it in this store."""
        return CommandId(next(self._commands))

    def run_job(self, live: LiveJob, command: CommandId) -> RunJob:
        """The command for the job's current attempt, built from what is known now."""
        return RunJob(
            epoch=self._epoch,
            store=self._store,
            command=command,
            job=live.id,
            attempt=live.attempt,
            created_at=int(live.new.created_at.timestamp()),
            request=live.request,
        )

    def resend(self, worker: Worker) -> None:
        """Send again every ``RunJob`` that this worker has not answered: a connection that broke
        may have lost it. The worker knows a command it has seen by its number."""
        for live in worker.held.values():
            if live.claimed and not live.accepted:
                self._send(live)

    def _wait(self, live: LiveJob) -> None:
        self._live[live.id] = live
        place = place_of(live.id, live.new.job_class, live.new.priority)
        self._waiting[live.new.model].push(place)

    def _claim(self, live: LiveJob, worker: Worker) -> Claim:
        """Move the job's pending view to running on this worker."""
        live.state = next_state(live.state, JobEvent.CLAIM)
        live.attempt += 1
        live.generation = worker.generation
        live.run_command = self.next_command()
        worker.held[live.id] = live
        worker.unseen.append(live.run_command)
        return Claim(
            job=live.id,
            attempt=live.attempt,
            generation=worker.generation,
            claimed_at=self._clock.now(),
        )

    def _claim_waiting(self, live: LiveJob, worker: Worker) -> None:
        claim = self._claim(live, worker)
        future = self._writer.submit(claim_job(claim, live.run_command))
        future.add_done_callback(partial(self._claimed, live, live.attempt))

    def _claimed(self, live: LiveJob, attempt: int, future: OutcomeFuture) -> None:
        if future.cancelled() or future.exception() is not None:
            _log.error("claim_failed", job=live.id, attempt=attempt, error=str(future.exception()))
        elif not isinstance(future.result(), Committed):
            _log.info("claim_void", job=live.id, attempt=attempt)
        elif live.attempt == attempt and live.state is JobState.RUNNING:
            live.claimed = True
            self._send(live)

    def _send(self, live: LiveJob) -> None:
        worker = self._fleet.get(live.generation) if live.generation is not None else None
        if worker is None or live.run_command is None:
            return
        worker.session.last_command = max(worker.session.last_command, live.run_command)
        self._fleet.send(worker, run_job_messages(self.run_job(live, live.run_command)))
