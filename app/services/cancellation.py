"""Stopping a job: committed before anyone acts on it, and answered by the job's own ending.

A job that waits ends at once. One that runs gets its stop reason and the command to its worker in
one commit; the command leaves after it, and the attempt's terminal event ends the job.
"""

from functools import partial

import structlog

from app.domain.job import JobState, StopReason
from app.domain.transitions import stopped
from app.services.clock import Clock
from app.services.endings import Endings
from app.services.fleet import Fleet, Worker
from app.services.ledger import Ledger, LiveJob
from app.services.relay import Relay
from app.storage.jobs import request_stop
from app.storage.operations import Committed
from app.storage.writer import OutcomeFuture, Writer
from shared.ids import CommandId, JobId
from shared.messages import Cancel

_log = structlog.get_logger("cancellation")


class Cancellation:
    """Asks jobs to stop."""

    def __init__(
        self,
        ledger: Ledger,
        fleet: Fleet,
        relay: Relay,
        endings: Endings,
        writer: Writer,
        clock: Clock,
        epoch: int,
    ) -> None:
        self._ledger = ledger
        self._fleet = fleet
        self._relay = relay
        self._endings = endings
        self._writer = writer
        self._clock = clock
        self._epoch = epoch

    def request_nowait(self, job: JobId, reason: StopReason = StopReason.CANCEL) -> None:
        """Stop this job if it is open; the first reason given wins. Total and idempotent."""
        live = self._ledger.get(job)
        if live is None or live.state.final or live.stop is not None:
            return
        live.stop = reason
        if live.state is JobState.RUNNING:
            self._stop_running(live, reason)
        elif self._relay.withdraw(live):
            self._endings.end_waiting(live, *stopped(reason))

    def _stop_running(self, live: LiveJob, reason: StopReason) -> None:
        if live.generation is None:
            return
        command = self._relay.next_command()
        operation = request_stop(
            live.id,
            reason,
            self._clock.now(),
            command=command,
            generation=live.generation,
            attempt=live.attempt,
        )
        future = self._writer.submit(operation)
        future.add_done_callback(partial(self._requested, live, command))

    def _requested(self, live: LiveJob, command: CommandId, future: OutcomeFuture) -> None:
        if future.cancelled() or future.exception() is not None:
            _log.error("cancel_failed", job=live.id, error=str(future.exception()))
            return
        if not isinstance(future.result(), Committed) or live.generation is None:
            return
        live.stop_command = command
        worker = self._fleet.get(live.generation)
        if worker is not None:
            self._send(worker, live, command)

    def resend(self, worker: Worker) -> None:
        """Send every cancel again that this worker has not answered."""
        for live in worker.held.values():
            if live.stop_command is not None:
                self._send(worker, live, live.stop_command)

    def _send(self, worker: Worker, live: LiveJob, command: CommandId) -> None:
        worker.session.last_command = max(worker.session.last_command, command)
        self._fleet.send(worker, [Cancel(self._epoch, command, live.id, live.attempt)])
