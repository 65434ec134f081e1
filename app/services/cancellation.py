"""Stopping a job: committed before anyone acts on it, and answered by the job's own ending.

A job that waits ends at once. One that runs gets its stop reason and the command to its worker in
one commit; the command leaves after it, and the attempt's terminal event ends the job. A worker
that does not answer is asked again after ``RESEND_S`` and replaced after ``REPLACE_S``; its other
jobs go on elsewhere, and nothing is held against them.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import structlog
from msgspec.structs import replace

from app.domain.errors import StorageFull
from app.domain.job import JobState, StopReason
from app.domain.transitions import stopped
from app.domain.view import JobView
from app.services.clock import Clock
from app.services.endings import Endings
from app.services.fleet import Fleet, Worker
from app.services.jobs import Jobs
from app.services.ledger import Ledger, LiveJob
from app.services.relay import Relay
from app.storage.errors import StoreFull
from app.storage.jobs import request_stop
from app.storage.operations import Committed
from app.storage.writer import OutcomeFuture, Writer
from app.streams.broadcast import Follower
from shared.ids import CommandId, JobId
from shared.messages import Cancel

RESEND_S = 1.0
REPLACE_S = 10.0

_log = structlog.get_logger("cancellation")


class Cancellation:
    """Asks jobs to stop.

    ``on_unanswered`` is called with a worker that has not answered a cancel, and why it goes.
    """

    def __init__(
        self,
        ledger: Ledger,
        fleet: Fleet,
        relay: Relay,
        endings: Endings,
        jobs: Jobs,
        writer: Writer,
        clock: Clock,
        epoch: int,
        cancel_wait_s: float,
    ) -> None:
        self._ledger = ledger
        self._fleet = fleet
        self._relay = relay
        self._endings = endings
        self._jobs = jobs
        self._writer = writer
        self._clock = clock
        self._epoch = epoch
        self._cancel_wait_s = cancel_wait_s
        self.on_unanswered: Callable[[Worker, str], None] = _nothing

    def request_nowait(self, job_id: JobId, reason: StopReason = StopReason.CANCEL) -> None:
        """Stop this job if it is open; the first reason given wins. Total and idempotent. Nobody
        waits for the answer, so a full disk is waited out."""
        live = self._ledger.get(job_id)
        if live is not None:
            self._request(live, reason, patient=True)

    async def cancel(self, job_id: JobId, tenant: str) -> JobView:
        """Cancel a job of this tenant and say how it stands: ended, if that came in time.

        Raises:
            JobNotFound: there is no such job of this tenant.
            StorageFull: the disk is full; nothing was asked of anyone.
        """
        live = self._ledger.get(job_id)
        if live is None or live.new.tenant != tenant:
            return await self._jobs.get(job_id, tenant)
        if self._writer.refuses:
            raise StorageFull
        follower = live.channel.follow()
        try:
            future = self._request(live, StopReason.CANCEL, patient=False)
            if future is not None:
                await asyncio.shield(future)
            await _ended_within(follower, live, self._cancel_wait_s)
        except StoreFull as error:
            raise StorageFull from error
        finally:
            follower.close()
        return await self._jobs.get(job_id, tenant)

    def adopt(self, live: LiveJob, command: CommandId) -> None:
        """An earlier parent committed this cancel: it is to be sent until it is answered."""
        live.stop_command = command

    def send_again(self, worker: Worker, live: LiveJob) -> None:
        """Send the job's cancel again, if there is one that was not answered."""
        if live.stop_command is not None and live.state is JobState.RUNNING:
            self._demand(worker, live, live.stop_command)

    def _request(
        self, live: LiveJob, reason: StopReason, *, patient: bool
    ) -> "OutcomeFuture | None":
        if live.state.final or live.stop is not None:
            return None
        live.stop = reason
        if live.state is JobState.RUNNING:
            return self._stop_running(live, reason, patient=patient)
        self._relay.withdraw(live)
        self._endings.end_waiting(live, *stopped(reason))
        return None

    def _stop_running(
        self, live: LiveJob, reason: StopReason, *, patient: bool
    ) -> "OutcomeFuture | None":
        if live.generation is None:
            return None
        command = self._relay.next_command()
        operation = request_stop(
            live.id,
            reason,
            self._clock.now(),
            command=command,
            generation=live.generation,
            attempt=live.attempt,
        )
        future = self._writer.submit(replace(operation, patient=patient))
        future.add_done_callback(partial(self._requested, live, live.attempt, command))
        return future

    def _requested(
        self, live: LiveJob, attempt: int, command: CommandId, future: OutcomeFuture
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            _log.error("cancel_not_stored", job=live.id, error=str(future.exception()))
            live.stop = None
            return
        if not isinstance(future.result(), Committed) or live.attempt != attempt:
            return
        live.stop_command = command
        worker = self._fleet.get(live.generation) if live.generation is not None else None
        if worker is None or not live.sent:
            return  # not sent yet: the relay sees the stop and ends the job
        self._demand(worker, live, command)

    def _demand(self, worker: Worker, live: LiveJob, command: CommandId) -> None:
        """Send the cancel, and see that it is answered."""
        self._send(worker, live, command)
        loop = asyncio.get_running_loop()
        loop.call_later(RESEND_S, self._unanswered, live, command)
        loop.call_later(REPLACE_S, self._overdue, live, command)

    def _unanswered(self, live: LiveJob, command: CommandId) -> None:
        worker = self._holder(live, command)
        if worker is not None:
            self._send(worker, live, command)

    def _overdue(self, live: LiveJob, command: CommandId) -> None:
        worker = self._holder(live, command)
        if worker is not None:
            self.on_unanswered(worker, f"a cancel was not answered within {REPLACE_S:g} s")

    def _holder(self, live: LiveJob, command: CommandId) -> Worker | None:
        """The worker that still owes an answer to this cancel."""
        if live.state is not JobState.RUNNING or live.stop_command != command:
            return None
        return self._fleet.get(live.generation) if live.generation is not None else None

    def _send(self, worker: Worker, live: LiveJob, command: CommandId) -> None:
        worker.session.last_command = max(worker.session.last_command, command)
        self._fleet.send(worker, [Cancel(self._epoch, command, live.id, live.attempt)])


def _nothing(*_args: object) -> None:
    """Nobody is wired yet."""


async def _ended_within(follower: Follower, live: LiveJob, wait_s: float) -> None:
    """Wait until the job's ending was shown, at most so long."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    while not live.channel.ended and (left := until - loop.time()) > 0:
        await follower.take(left)
