"""A worker that comes back: after a broken connection, or to a parent that has restarted.

Its ``Hello`` says which attempts it has and which frames it still keeps. Once those frames are
folded, the two accounts are compared: what the store says it runs and it does not have is sent
again if it was never answered, and taken back otherwise; what it has and the store does not know is
cancelled.
"""

from collections.abc import Callable

import structlog

from app.domain.job import JobState
from app.services.cancellation import Cancellation
from app.services.fleet import Fleet, Worker
from app.services.ledger import LiveJob
from app.services.preemption import Preemption
from app.services.relay import Relay
from app.services.rescue import Rescue
from shared.ids import CommandId, JobId
from shared.messages import Cancel, Hello

_log = structlog.get_logger("adoption")


class Adoption:
    """Compares a returning worker's account with the store's.

    ``on_compared`` is called with a worker once that is done.
    """

    def __init__(
        self,
        fleet: Fleet,
        relay: Relay,
        rescue: Rescue,
        cancellation: Cancellation,
        preemption: Preemption,
        epoch: int,
    ) -> None:
        self._fleet = fleet
        self._relay = relay
        self._rescue = rescue
        self._cancellation = cancellation
        self._preemption = preemption
        self._epoch = epoch
        self.on_compared: Callable[[Worker], None] = _nothing

    def greeted(self, worker: Worker, hello: Hello) -> None:
        """The worker said ``Hello`` and was welcomed."""
        worker.hello = hello
        self.folded(worker)

    def sent(self, worker: Worker, live: LiveJob) -> None:
        """``RunJob`` has left: what was asked of the job meanwhile follows it."""
        self._cancellation.send_again(worker, live)
        self._preemption.send_again(worker, live)

    def folded(self, worker: Worker) -> None:
        """A frame of this worker was folded: compare, once nothing of its past is missing."""
        hello = worker.hello
        if hello is None or worker.session.received < hello.last_made:
            return
        worker.hello = None
        held = {(item.job, item.attempt) for item in hello.held}
        for live in list(worker.held.values()):
            if live.state is not JobState.RUNNING:
                continue
            if (live.id, live.attempt) in held:
                self._cancellation.send_again(worker, live)
                self._preemption.send_again(worker, live)
            elif live.sent and not live.accepted and live.stop is None:
                self._relay.send_again(live)
            elif live.claimed and live.sent:
                self._rescue.reclaim(worker, live)
        self._cancel_unknown(worker, held)
        self.on_compared(worker)

    def _cancel_unknown(self, worker: Worker, held: set[tuple[JobId, int]]) -> None:
        for job, attempt in sorted(held):  # in the same order in every run
            live = next((known for known in worker.held.values() if known.id == job), None)
            if live is None or live.attempt != attempt:
                _log.info("unknown_attempt", job=job, attempt=attempt)
                cancel = Cancel(self._epoch, CommandId(0), job, attempt)
                self._fleet.send(worker, [cancel])


def _nothing(_worker: Worker) -> None:
    """Nobody is wired yet."""
