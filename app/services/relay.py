"""The dispatcher: claims waiting jobs for workers with room, and sends them once that is committed.

One dispatcher, so claims are decided in memory. A claim rides in the commit of the job's own insert
where a row is free at submission; otherwise it is an operation of its own. ``RunJob`` leaves only
after the commit that holds the claim and the command's row, and after what the job needs was read
back. Nothing polls: the relay is pumped when a job arrives, when credit grows and when a worker
becomes ready.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import count
from typing import Final, TypeAlias

import structlog

from app.dispatch.bodies import run_job_messages
from app.domain.draft import DueJob
from app.domain.job import Claim, JobState
from app.domain.transitions import JobEvent, next_state
from app.services.clock import Clock
from app.services.fleet import Fleet, Worker
from app.services.ledger import LiveJob
from app.services.queues import Queues
from app.services.recall import DAMAGED, Recall
from app.services.tasks import Tasks
from app.storage.errors import PayloadDamaged
from app.storage.idempotency import NewIdempotency
from app.storage.jobs import claim_jobs, insert_job
from app.storage.operations import Committed, Operation
from app.storage.writer import OutcomeFuture, Writer
from shared.failures import Failure
from shared.ids import CommandId, JobId, StoreId
from shared.messages import RunJob

_log = structlog.get_logger("relay")

CLAIMS_TOGETHER_MAX: Final = 128
"""Claims that are written as one operation."""

COMMANDS_A_START: Final = 1 << 40
"""Command numbers that one start may use: those of the next are higher without a look at the
store."""

INTERNAL = Failure(code="internal_error", message="The job could not be handed to a worker.")


class Relay:
    """The way from the queues to a worker.

    ``on_demand`` is called with a model that jobs wait for and no worker serves; ``on_unsendable``
    with a claimed job that cannot be sent, and why (None: a stop came first); ``on_sent`` after
    ``RunJob`` has left, so that what was asked of the job meanwhile can follow it; ``on_pumped``
    with a worker that was given what it has room for.
    """

    def __init__(
        self,
        fleet: Fleet,
        queues: Queues,
        writer: Writer,
        clock: Clock,
        recall: Recall,
        tasks: Tasks,
        epoch: int,
        store: StoreId,
    ) -> None:
        self._fleet = fleet
        self._queues = queues
        self._writer = writer
        self._clock = clock
        self._recall = recall
        self._tasks = tasks
        self._epoch = epoch
        self._store = store
        self._commands = count(first_command(epoch))
        self.on_demand: Callable[[str], None] = _nothing
        self.on_unsendable: Callable[[LiveJob, Failure | None], None] = _nothing
        self.on_sent: Callable[[Worker, LiveJob], None] = _nothing
        self.on_pumped: Callable[[Worker], None] = _nothing
        self.paused = False
        self._let_through: set[JobId] = set()
        self._due: set[str] = set()

    def admit(
        self, live: LiveJob, key: NewIdempotency | None = None, due: DueJob | None = None
    ) -> Operation:
        """The operation that inserts this job, with its claim where a row is free now."""
        worker = self._fleet.serving(live.new.model)
        later = live.state is not JobState.AVAILABLE
        if later or self.paused or worker is None or not self._queues.admits(live, worker):
            return insert_job(live.new, idempotency=key, due=due)
        self._queues.begin(live)
        claim = self._claim(live, worker, self._clock.now())
        return insert_job(live.new, claim, live.run_command, idempotency=key, due=due)

    def inserted(self, live: LiveJob) -> None:
        """The job's insert is committed: send it, or queue it."""
        if live.state is JobState.RUNNING:
            self._claimed_now(live)
        elif live.state is JobState.AVAILABLE:
            self.queue(live)

    def queue(self, live: LiveJob) -> None:
        """The job waits for a row from now on."""
        if live in self._queues:
            return
        self._queues.push(live)
        if self._fleet.serving(live.new.model) is not None:
            self.pump_soon(live.new.model)
        elif not self.paused or live.id in self._let_through:
            self.on_demand(live.new.model)

    def pump(self, model: str) -> None:
        """Claim as many waiting jobs of this model as its worker has room for."""
        worker = self._fleet.serving(model)
        if worker is None:
            return
        if self.paused:
            self._pump_paused(worker)
            return
        if worker.rows_free and self._queues.waits_for(model):
            self._claim_waiting(worker, self._taken(worker))
        self.on_pumped(worker)

    def _taken(self, worker: Worker) -> Iterator[LiveJob]:
        """What the worker has room for, one at a time: each is claimed before the next is asked
        for."""
        held = self._queues.held(worker)
        while (live := self._queues.take(worker, held)) is not None:
            yield live

    def pump_soon(self, model: str) -> None:
        """``pump`` once what is happening now has happened: many jobs end with one frame."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._pump_due)
        self._due.add(model)

    def _pump_due(self) -> None:
        due, self._due = self._due, set()
        for model in due:
            self.pump(model)

    def let_through(self, jobs: set[JobId]) -> None:
        """While paused, these jobs are claimed all the same."""
        self._let_through = jobs
        for model in self._queues.models():
            self.pump(model)

    def _pump_paused(self, worker: Worker) -> None:
        if not self._let_through or self._queues.runs_alone(worker):
            return
        self._claim_waiting(worker, self._taken_paused(worker))

    def _taken_paused(self, worker: Worker) -> Iterator[LiveJob]:
        for live in self._queues.of_model(worker.model):
            if live.id in self._let_through and worker.rows_free:
                self._queues.take_this(live)
                yield live

    def pause(self) -> None:
        """Claim nothing until ``resume``."""
        self.paused = True

    def resume(self) -> None:
        """Claim again."""
        self.paused = False
        self._let_through = set()
        for model in self._queues.models():
            if self._fleet.serving(model) is None:
                self.on_demand(model)
            self.pump(model)

    def withdraw(self, live: LiveJob) -> bool:
        """Take a job out of its queue; False when it does not wait."""
        return self._queues.withdraw(live)

    def next_command(self) -> CommandId:
        """A command number, higher than any before it in this store."""
        return CommandId(next(self._commands))

    def send_again(self, live: LiveJob) -> None:
        """Send ``RunJob`` again if it was sent and not answered: a connection that broke may have
        lost it. The worker knows a command it has seen by its number."""
        if live.sent and not live.accepted:
            self._send(live)

    def _claim(self, live: LiveJob, worker: Worker, now: datetime) -> Claim:
        """Move the job's pending view to running on this worker."""
        live.state = next_state(live.state, JobEvent.CLAIM)
        command = self.next_command()
        live.begin_attempt(worker.generation, command)
        worker.held[live.id] = live
        worker.unseen.append(command)
        return Claim(
            job=live.id,
            attempt=live.attempt,
            generation=worker.generation,
            claimed_at=now,
        )

    def _claim_waiting(self, worker: Worker, taken: Iterable[LiveJob]) -> None:
        now = self._clock.now()
        claims = [(live, self._claim(live, worker, now)) for live in taken]
        for start in range(0, len(claims), CLAIMS_TOGETHER_MAX):
            self._record(claims[start : start + CLAIMS_TOGETHER_MAX])

    def _record(self, claims: Sequence["_Claimed"]) -> None:
        """Write these with one operation."""
        commands = [(claim, live.run_command) for live, claim in claims]
        future = self._writer.submit(claim_jobs(commands))
        future.add_done_callback(partial(self._recorded, claims))

    def _recorded(self, claims: Sequence["_Claimed"], future: OutcomeFuture) -> None:
        stored = not future.cancelled() and future.exception() is None
        if stored and isinstance(future.result(), Committed):
            for live, claim in claims:
                if _still(live, claim):
                    self._claimed_now(live)
            return
        claims = [claimed for claimed in claims if _still(*claimed)]
        if len(claims) > 1:  # one of them could not go: each for itself
            for claimed in claims:
                self._record([claimed])
        else:
            for live, claim in claims:
                outcome = str(future)
                _log.error("claim_not_stored", job=live.id, attempt=claim.attempt, outcome=outcome)
                self.on_unsendable(live, INTERNAL)

    def _claimed_now(self, live: LiveJob) -> None:
        """The claim is committed: send the job, reading back first what is not in memory."""
        live.claimed = True
        if live.stop is not None:
            self.on_unsendable(live, None)
        elif live.request is not None and live.loaded:
            self._send(live)
        else:
            self._tasks.spawn(self._recall_and_send(live, live.attempt), f"recall {live.id}")

    async def _recall_and_send(self, live: LiveJob, attempt: int) -> None:
        failure: Failure | None = None
        try:
            await self._recall.complete(live)
        except (PayloadDamaged, ValueError) as error:
            _log.error("job_damaged", job=live.id, error=str(error))
            failure = DAMAGED
        if live.attempt != attempt or live.state is not JobState.RUNNING:
            return
        if failure is not None or live.stop is not None or live.request is None:
            self.on_unsendable(live, failure or (None if live.stop else DAMAGED))
        else:
            self._send(live)

    def _send(self, live: LiveJob) -> None:
        worker = self._fleet.get(live.generation) if live.generation is not None else None
        if worker is None or live.run_command is None:
            return
        live.sent = True
        worker.session.last_command = max(worker.session.last_command, live.run_command)
        run = self._run_job(live, live.run_command)
        self._fleet.send(worker, run_job_messages(run, live.new.request))
        self.on_sent(worker, live)

    def _run_job(self, live: LiveJob, command: CommandId) -> RunJob:
        """The command for the job's current attempt, built from what is known now."""
        return RunJob(
            epoch=self._epoch,
            store=self._store,
            command=command,
            job=live.id,
            attempt=live.attempt,
            created_at=int(live.new.created_at.timestamp()),
            request=live.request,
            resume=live.output.resume(),
            prompt_digest=live.prompt_digest,
            fingerprint=live.fingerprint,
            class_rank=live.new.job_class.rank,
        )


def first_command(epoch: int) -> int:
    """The lowest command number that the parent of this epoch may use."""
    return epoch * COMMANDS_A_START + 1


_Claimed: TypeAlias = tuple[LiveJob, Claim]


def _still(live: LiveJob, claim: Claim) -> bool:
    """Whether the job has not moved on since it was claimed so."""
    return live.attempt == claim.attempt and live.state is JobState.RUNNING


def _nothing(*_args: object) -> None:
    """Nobody is wired yet."""
