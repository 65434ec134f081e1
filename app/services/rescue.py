"""What becomes of a lost worker's jobs.

Losing a generation is one operation: its row, its commands, and every job it held. From then on its
frames are void. Attached jobs end here with the worker's death as their reason; their usage is what
was delivered, a lower bound.
"""

from functools import partial

import structlog

from app.domain.job import Ending
from app.domain.transitions import failed
from app.domain.worker_state import WorkerEvent, WorkerState
from app.services.clock import Clock
from app.services.endings import Endings
from app.services.fleet import Fleet, Worker
from app.services.ledger import LiveJob
from app.storage.generations import lose_generation
from app.storage.operations import Committed
from app.storage.writer import OutcomeFuture, Writer
from shared.failures import Failure

_log = structlog.get_logger("rescue")


class Rescue:
    """Takes back what a lost worker held."""

    def __init__(self, fleet: Fleet, endings: Endings, writer: Writer, clock: Clock) -> None:
        self._fleet = fleet
        self._endings = endings
        self._writer = writer
        self._clock = clock

    def lose(self, worker: Worker, reason: str) -> None:
        """Declare this worker lost; calling it again does nothing."""
        if worker.state in (WorkerState.LOST, WorkerState.GONE):
            return
        worker.move(WorkerEvent.LOSE)
        worker.session.close()
        self._fleet.disconnect(worker)
        _log.warning("worker_lost", generation=worker.generation, reason=reason)
        ended = [(live, self._ending(live, reason)) for live in worker.held.values()]
        worker.held.clear()
        operation = lose_generation(
            worker.generation,
            self._clock.now(),
            reason,
            [(live.new, ending, live.stop) for live, ending in ended],
        )
        future = self._writer.submit(operation)
        future.add_done_callback(partial(self._lost, worker, ended))

    def _ending(self, live: LiveJob, reason: str) -> Ending:
        failure = Failure(
            code="worker_crashed",
            message=f"The worker process died while this request was running ({reason}).",
            retryable=True,
        )
        return self._endings.decide(live, *failed(failure, live.stop), complete=False)

    def _lost(
        self, worker: Worker, ended: list[tuple[LiveJob, Ending]], future: OutcomeFuture
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            _log.error(
                "loss_not_stored", generation=worker.generation, error=str(future.exception())
            )
        elif not isinstance(future.result(), Committed):
            _log.error("loss_void", generation=worker.generation)
        for live, ending in ended:
            self._endings.show(live, ending)
