"""What an earlier parent left behind, put in order before anything new is accepted.

Every generation that is over gets its receipt if it has none. Those that were declared lost are
ended for good, stops go on from where they stood. The others may still be alive: their workers are
watched and expected to say ``Hello`` within ``ADOPT_TIMEOUT_S``, and what they hold goes on without
a token computed again. Attached jobs end ``parent_lost``, since their connections died with that
parent; stored and durable ones go on, now or when they are due.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import structlog

from app.dispatch.sessions import Session
from app.domain.gate import Gate
from app.domain.job import Durability, JobState, StopReason
from app.domain.receipts import Rank
from app.domain.retry import BACKOFF_MAX_S
from app.domain.transitions import stopped
from app.domain.worker_state import WorkerState
from app.services.cancellation import Cancellation
from app.services.clock import Clock
from app.services.deadlines import Deadlines
from app.services.dependents import Dependents
from app.services.endings import Endings
from app.services.fleet import Fleet, Worker
from app.services.launching import Launcher
from app.services.ledger import Ledger, LiveJob
from app.services.queues import Queues
from app.services.recall import DAMAGED, Recall, cost_of, take_row
from app.services.relay import Relay
from app.services.returns import Returns
from app.services.sealing import Sealing
from app.services.starts import Starts
from app.services.workers import Workers
from app.storage.accounting import load_receipt_of
from app.storage.database import Database
from app.storage.drains import interrupt_drains, load_running_drains
from app.storage.errors import PayloadDamaged
from app.storage.jobs import adopt_stored_jobs, request_stop
from app.storage.operations import NewReceipt
from app.storage.reading import (
    highest_id,
    load_commands,
    load_delivered,
    load_generations,
    load_missing_receipts,
    load_open_attempts,
    load_open_jobs,
    load_prefills,
)
from app.storage.receipts import write_receipts
from app.storage.rows import AttemptRow, CommandRow, GenerationRow, JobRow
from app.streams.broadcast import Channel
from app.supervision.process import Exit
from shared.ids import GenerationId

ADOPT_TIMEOUT_S = 10.0
"""How long a worker of an earlier parent may take to come back."""

_AFTER = "made up for after its end"
_ALIVE = frozenset({WorkerState.STARTING, WorkerState.READY})
_log = structlog.get_logger("boot")


class Past(msgspec.Struct, frozen=True):
    """What a new parent must not use again."""

    last_id_body: str | None


async def past_of(database: Database) -> Past:
    """Where counting continues."""
    return Past(await highest_id(database.readers))


class Boot:
    """Brings the open past into memory. Used once, before the socket opens."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        fleet: Fleet,
        queues: Queues,
        relay: Relay,
        returns: Returns,
        endings: Endings,
        recall: Recall,
        cancellation: Cancellation,
        deadlines: Deadlines,
        dependents: Dependents,
        starts: Starts,
        sealing: Sealing,
        workers: Workers,
        launcher: Launcher,
        clock: Clock,
    ) -> None:
        self._database = database
        self._writer = database.writer
        self._ledger = ledger
        self._fleet = fleet
        self._queues = queues
        self._relay = relay
        self._returns = returns
        self._endings = endings
        self._recall = recall
        self._cancellation = cancellation
        self._deadlines = deadlines
        self._dependents = dependents
        self._starts = starts
        self._sealing = sealing
        self._workers = workers
        self._launcher = launcher
        self._clock = clock
        self._queueable: list[LiveJob] = []

    async def run(self) -> None:
        """Take everything open into memory and end what cannot go on."""
        readers = self._database.readers
        await self._complete_receipts()
        await self._writer.submit(adopt_stored_jobs())
        drains = await load_running_drains(readers)
        if drains:
            await self._writer.submit(interrupt_drains(drains, self._clock.now()))
        jobs = {row.new.id: row for row in await load_open_jobs(readers)}
        attempts = {row.job: row for row in await load_open_attempts(readers)}
        delivered, prefills = await load_delivered(readers), await load_prefills(readers)
        generations = await load_generations(readers)
        commands = {g.id: await load_commands(readers, g.id) for g in generations}
        workers = {g.id: self._worker(g) for g in generations}
        await self._begin_stops(generations, workers, commands)
        lives = {job: _live(row, delivered.get(job, {})) for job, row in jobs.items()}
        for job, live in lives.items():
            self._dependents.adopt(live, jobs[job])
        for job, live in lives.items():
            live.record.computed(prefills.get(job, 0), live.prompt_tokens)
            live.since = self._since(live)
            await self._take(live, attempts.get(job), workers, commands)
        for generation in generations:
            self._watch(generation, workers[generation.id])
        await self._complete_receipts()
        _log.info("past_in_order", open_jobs=len(jobs), generations=len(generations))

    async def _complete_receipts(self) -> None:
        """Whatever is over has a receipt when this returns, and what was written before is
        committed."""
        now = self._clock.now()
        missing = await load_missing_receipts(self._database.readers)
        await self._writer.submit(
            write_receipts(
                [
                    NewReceipt(generation=g, asked=Rank.CRASH, now=now, detail=_AFTER)
                    for g in missing
                ]
            )
        )

    async def _begin_stops(
        self,
        generations: Sequence[GenerationRow],
        workers: Mapping[GenerationId, Worker],
        commands: Mapping[GenerationId, Sequence[CommandRow]],
    ) -> None:
        """Stops that an earlier parent began are known before anything is decided about jobs."""
        for row in generations:
            if row.state is WorkerState.STOPPING:
                asked = [command.id for command in commands[row.id] if command.kind == "seal"]
                receipt = await load_receipt_of(self._database.readers, row.id)
                sealed = receipt is not None and receipt.rank is Rank.SEALED
                command = asked[0] if asked else None
                self._sealing.adopt(workers[row.id], command, sealed=sealed)

    def _since(self, live: LiveJob) -> float | None:
        """When the job's waiting began, by the clock that waiting is counted on."""
        waited_s = (self._clock.now() - live.new.scheduled_at).total_seconds()
        return self._clock.monotonic() - waited_s if waited_s >= 0 else None

    def go_on(self) -> None:
        """The socket is open: jobs that wait may be claimed from now on."""
        for live in self._queueable:
            if live.state is JobState.AVAILABLE:
                self._returns.snooze(live, self._snoozes_s(live))
        self._queueable.clear()

    def _snoozes_s(self, live: LiveJob) -> float:
        """For how long the job still snoozes that a worker of an earlier parent had no room for."""
        if not live.attempt:
            return 0.0
        left = live.new.scheduled_at - self._clock.now()
        return min(left.total_seconds(), BACKOFF_MAX_S)

    def _worker(self, row: GenerationRow) -> Worker:
        session = Session(
            row.id,
            self._launcher.epoch,
            self._launcher.store,
            committed=row.last_seq,
            received=row.last_seq,
        )
        worker = Worker(
            generation=row.id,
            model=row.model,
            session=session,
            log_path=self._launcher.log_path(row.id),
            created_at=self._clock.monotonic(),
            state=row.state,
            gate=Gate(row.gate),
            loss_stored=row.state is WorkerState.LOST,
            adopted=True,
        )
        self._fleet.add(worker)
        return worker

    async def _take(
        self,
        live: LiveJob,
        attempt: AttemptRow | None,
        workers: dict[GenerationId, Worker],
        commands: dict[GenerationId, list[CommandRow]],
    ) -> None:
        self._ledger.add(live)
        self._deadlines.watch(live)
        worker = workers.get(attempt.generation) if attempt is not None else None
        if live.state is JobState.RUNNING and attempt is not None and worker is not None:
            await self._take_running(live, attempt, worker, commands[worker.generation])
        elif live.attached:
            self._endings.end_waiting(live, *stopped(StopReason.PARENT_LOST))
        elif live.stop is not None:
            self._endings.end_waiting(live, *stopped(live.stop))
        elif live.state is JobState.AVAILABLE:
            self._queueable.append(live)
        else:
            left = live.new.scheduled_at - self._clock.now()
            self._returns.wait_until_due(live, left.total_seconds())
            self._dependents.begin(live)

    async def _take_running(
        self, live: LiveJob, attempt: AttemptRow, worker: Worker, commands: list[CommandRow]
    ) -> None:
        live.generation, live.claimed, live.sent = worker.generation, True, True
        live.accepted, live.run_command = attempt.accepted_at is not None, attempt.command
        live.record.begin_attempt()
        live.record.computed(attempt.prefill_tokens, live.prompt_tokens)
        live.record.tokens = attempt.delivered_tokens
        self._queues.begin(live)
        worker.held[live.id] = live
        for command in commands:
            if command.job == live.id and command.kind == "cancel":
                self._cancellation.adopt(live, command.id)
            elif command.job == live.id and command.kind == "preempt":
                live.preempting, live.preempt_command = True, command.id
        if attempt.accepted_at is not None:
            self._deadlines.watch_attempt(live, attempt.accepted_at)
        if live.attached:
            self._stop_attached(live)
            return
        try:
            await self._recall.complete(live)
        except (PayloadDamaged, ValueError) as error:
            _log.error("job_damaged", job=live.id, error=str(error))
            self._endings.end_unheld(live, DAMAGED)

    def _stop_attached(self, live: LiveJob) -> None:
        """Its client is gone with the earlier parent: the worker is told as soon as it is back."""
        if live.stop is not None:
            return
        live.stop = StopReason.PARENT_LOST
        command = self._relay.next_command()
        self._writer.submit(
            request_stop(
                live.id,
                StopReason.PARENT_LOST,
                self._clock.now(),
                command=command,
                generation=live.generation,
                attempt=live.attempt,
            )
        )
        self._cancellation.adopt(live, command)

    def _watch(self, row: GenerationRow, worker: Worker) -> None:
        """Expect this worker back, or end it."""
        exited = partial(self._workers.exited, worker)
        if row.pid is not None and row.pid_started is not None:
            worker.process = self._launcher.adopt(row.pid, row.pid_started, exited)
            if worker.process is None:
                self._workers.exited(worker, Exit())
                return
        if row.state is WorkerState.STOPPING:
            self._workers.resume_stop(worker, ADOPT_TIMEOUT_S)
            return
        if row.state not in _ALIVE:
            self._workers.replace(worker, "it was being ended by an earlier parent")
            return
        loop = asyncio.get_running_loop()
        loop.call_later(ADOPT_TIMEOUT_S, self._not_back, worker)
        if row.state is WorkerState.STARTING:
            self._starts.expect_ready(worker)

    def _not_back(self, worker: Worker) -> None:
        if worker.session.heard_at is None and worker.state in _ALIVE:
            self._workers.broken(worker, f"it did not come back within {ADOPT_TIMEOUT_S:g} s")


def _live(row: JobRow, delivered: dict[int, int]) -> LiveJob:
    """An open job, without what only a claim needs: that is read then. What it has ``delivered``
    is known by number, so that it is counted right however it ends."""
    new = row.new
    if new.durability is Durability.STORED:
        new = msgspec.structs.replace(new, durability=Durability.DURABLE)
    attached = new.durability is Durability.ATTACHED
    live = LiveJob(
        new=new,
        request=None,
        state=row.state,
        stop=row.stop_reason,
        attempt=row.attempt,
        loaded=attached,
        channel=Channel(first_seq=row.events, bounded=not attached),
    )
    take_row(live, row)
    live.cost = cost_of(new.settings)
    live.record.deaths, live.record.alone = row.held_deaths, row.held_alone
    live.output.skip(delivered)
    return live
