"""Asking a worker to give a row back: the job goes on later, from where it stands.

Like a cancel: the command's row is committed first, then sent, answered by the attempt's terminal
event, sent again after a broken connection. A row with an outstanding request gets no second one.
"""

from functools import partial

import structlog

from app.domain.job import JobState
from app.services.clock import Clock
from app.services.fleet import Fleet, Worker
from app.services.ledger import LiveJob
from app.services.relay import Relay
from app.storage.commands import preempt_job
from app.storage.operations import Committed
from app.storage.writer import OutcomeFuture, Writer
from shared.ids import CommandId
from shared.messages import Preempt

_log = structlog.get_logger("preemption")


class Preemption:
    """Requests rows back."""

    def __init__(
        self, fleet: Fleet, relay: Relay, writer: Writer, clock: Clock, epoch: int
    ) -> None:
        self._fleet = fleet
        self._relay = relay
        self._writer = writer
        self._clock = clock
        self._epoch = epoch

    def request(self, live: LiveJob, *, counted: bool = False) -> None:
        """Ask for this running job's row, unless that was done or the job is to stop anyway.
        ``counted`` when it gives way to a job of a higher class in the middle of its answer."""
        if live.state is not JobState.RUNNING or live.preempting or live.stop is not None:
            return
        if live.generation is None:
            return
        live.preempting, live.giving_way = True, counted
        command = self._relay.next_command()
        operation = preempt_job(live.id, live.attempt, live.generation, command, self._clock.now())
        future = self._writer.submit(operation)
        future.add_done_callback(partial(self._requested, live, live.attempt, command))

    def send_again(self, worker: Worker, live: LiveJob) -> None:
        """Send the job's request again, if there is one that was not answered."""
        if live.preempt_command is not None and live.state is JobState.RUNNING:
            self._send(worker, live, live.preempt_command)

    def _requested(
        self, live: LiveJob, attempt: int, command: CommandId, future: OutcomeFuture
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            _log.error("preempt_not_stored", job=live.id, error=str(future.exception()))
            live.preempting = live.giving_way = False
            return
        if not isinstance(future.result(), Committed) or live.attempt != attempt:
            return
        live.preempt_command = command
        worker = self._fleet.get(live.generation) if live.generation is not None else None
        if worker is not None and live.sent:
            self._send(worker, live, command)

    def _send(self, worker: Worker, live: LiveJob, command: CommandId) -> None:
        worker.session.last_command = max(worker.session.last_command, command)
        self._fleet.send(worker, [Preempt(self._epoch, command, live.id, live.attempt)])
