"""Bringing a worker to the point where it may be told to leave: first its receipt, then a word.

    close the gate ─▶ let its jobs come to rest ─▶ Seal ─▶ its own count ─▶ receipt

Each step is committed before the next. The worker's count comes in a frame like any answer, and the
receipt is written in the operation that folds it: nothing the worker said before can be missing
from the totals it is compared with. A step that does not come to its end in time stops nothing: the
gate stays closed, the process stays as it is, and whoever asks again goes on from there. A process
that was never ready was given no work, and needs not be asked.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import structlog

from app.domain.receipts import Rank
from app.domain.report_errors import StopIncomplete
from app.domain.worker_state import WorkerEvent, WorkerState
from app.services.clock import Clock
from app.services.fleet import Fleet, Worker
from app.services.ledger import LiveJob
from app.services.relay import Relay
from app.services.stops import Stop
from app.storage.generations import stop_generation
from app.storage.operations import Committed, NewReceipt
from app.storage.receipts import seal_command
from app.storage.writer import OutcomeFuture, Writer
from shared.ids import CommandId
from shared.messages import Answer, Seal
from shared.totals import GenerationTotals

JOBS_SHOWN_MAX: Final = 5
"""Jobs named in the refusal of a stop that they hold up."""

_TOTALS: Final = msgspec.msgpack.Decoder(GenerationTotals)
_OVER: Final = (WorkerState.LOST, WorkerState.GONE)
_WAS_LOST: Final = "The worker was lost."
_log = structlog.get_logger("sealing")


class Sealing:
    """Seals workers.

    ``checkpoint`` is called with each journaled job of a worker that stops, so that it goes on
    elsewhere; ``abort`` with each attached one that has not ended in time.
    """

    def __init__(
        self, fleet: Fleet, relay: Relay, writer: Writer, clock: Clock, epoch: int
    ) -> None:
        self._fleet = fleet
        self._relay = relay
        self._writer = writer
        self._clock = clock
        self._epoch = epoch
        self.checkpoint: Callable[[LiveJob], None] = _nothing
        self.abort: Callable[[LiveJob], None] = _nothing

    async def seal(self, worker: Worker, drain_s: float, abort_s: float) -> None:
        """Return when the worker's receipt is committed. Any number may ask at once.

        Args:
            worker: it is given no more work from now on.
            drain_s: how long its attached jobs may go on.
            abort_s: how long each further step may take.

        Raises:
            StopIncomplete: a step took longer, or the worker was lost, before this or meanwhile.
        """
        if worker.state in _OVER:
            raise StopIncomplete(_WAS_LOST)
        stop = self._close(worker)
        if not await self._until(worker, stop, lambda: stop.closed, abort_s):
            raise StopIncomplete("That the worker stops could not be written down in time.")
        if stop.sealed:
            return
        await self._come_to_rest(worker, stop, drain_s, abort_s)
        self._ask(worker, stop)
        if not await self._until(worker, stop, lambda: stop.sealed, abort_s):
            raise StopIncomplete("The worker's receipt could not be written in time.")

    def adopt(self, worker: Worker, command: CommandId | None, *, sealed: bool) -> None:
        """An earlier parent has begun to stop this worker, and come so far."""
        worker.stop = Stop(closed=True, command=command, sealed=sealed)

    def send_again(self, worker: Worker) -> None:
        """The worker is back, and what it had said is folded: ask again, if it was asked."""
        stop = worker.stop
        if stop is not None and stop.command is not None and not stop.sealed:
            self._send(worker, stop.command)

    def answered(self, worker: Worker, answer: Answer) -> NewReceipt | None:
        """The receipt that goes with this answer; None when it answers nothing that was asked."""
        stop = worker.stop
        if stop is None or stop.sealed or stop.command != answer.command:
            return None
        return NewReceipt(
            generation=worker.generation,
            asked=Rank.SEALED,
            now=self._clock.now(),
            own=_own(answer),
        )

    def sealed(self, worker: Worker) -> None:
        """The receipt is committed."""
        if worker.stop is not None:
            worker.stop.sealed = True
            worker.stop.changed.set()
            _log.info("worker_sealed", generation=worker.generation)

    def look(self, *_what: object) -> None:
        """Something has changed that a stop may wait for."""
        for worker in self._fleet.all():
            if worker.stop is not None:
                worker.stop.changed.set()

    def changed(self, worker: Worker) -> None:
        """The same of this worker."""
        if worker.stop is not None:
            worker.stop.changed.set()

    def _close(self, worker: Worker) -> Stop:
        """No job goes to it any more."""
        if worker.stop is not None:
            return worker.stop
        ever_ready = worker.state is not WorkerState.STARTING
        receipt = NewReceipt(generation=worker.generation, asked=Rank.SEALED, now=self._clock.now())
        worker.move(WorkerEvent.STOP)
        stop = worker.stop = Stop()
        operation = stop_generation(worker.generation, None if ever_ready else receipt)
        future = self._writer.submit(operation)
        future.add_done_callback(partial(self._closed, worker, stop, ever_ready))
        return stop

    def _closed(
        self,
        worker: Worker,
        stop: Stop,
        ever_ready: bool,  # noqa: FBT001 - bound by partial
        future: OutcomeFuture,
    ) -> None:
        if _stored(worker, future):
            stop.closed, stop.sealed = True, not ever_ready
            stop.changed.set()

    async def _come_to_rest(
        self, worker: Worker, stop: Stop, drain_s: float, abort_s: float
    ) -> None:
        for live in list(worker.held.values()):
            if not live.attached:
                self.checkpoint(live)
        if await self._until(worker, stop, lambda: not worker.held, drain_s):
            return
        for live in list(worker.held.values()):
            if live.attached:
                self.abort(live)
        if not await self._until(worker, stop, lambda: not worker.held, abort_s):
            shown = ", ".join(list(worker.held)[:JOBS_SHOWN_MAX])
            raise StopIncomplete(f"{len(worker.held)} jobs have not come to rest: {shown}")

    def _ask(self, worker: Worker, stop: Stop) -> None:
        if stop.command is not None or stop.sealed:
            return
        stop.command = self._relay.next_command()
        operation = seal_command(worker.generation, stop.command, self._clock.now())
        future = self._writer.submit(operation)
        future.add_done_callback(partial(self._asked, worker, stop))

    def _asked(self, worker: Worker, stop: Stop, future: OutcomeFuture) -> None:
        if not _stored(worker, future):
            stop.command = None  # to be asked for again
        elif stop.command is not None:
            self._send(worker, stop.command)

    def _send(self, worker: Worker, command: CommandId) -> None:
        worker.session.last_command = max(worker.session.last_command, command)
        self._fleet.send(worker, [Seal(self._epoch, command)])

    async def _until(
        self, worker: Worker, stop: Stop, reached: Callable[[], bool], seconds: float
    ) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while not reached():
                    if worker.state in _OVER:
                        raise StopIncomplete(_WAS_LOST)
                    stop.changed.clear()
                    await stop.changed.wait()
        except TimeoutError:
            return False
        return True


def _own(answer: Answer) -> GenerationTotals | None:
    try:
        return _TOTALS.decode(answer.body)
    except msgspec.DecodeError:
        return None


def _stored(worker: Worker, future: OutcomeFuture) -> bool:
    """Whether it is committed; else it is in the log."""
    error = None if future.cancelled() else future.exception()
    if not future.cancelled() and error is None and isinstance(future.result(), Committed):
        return True
    _log.error("stop_not_stored", generation=worker.generation, outcome=str(error or future))
    return False


def _nothing(_live: LiveJob) -> None:
    """Nobody is wired yet."""
