"""Receipts as whoever books them deals with them: preparing a stop, what is pending, acknowledging.

Acknowledging goes by (id, revision) and apart from the feed's consumers. Neither waits for a stop
that is under way: they share no lock with it.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import structlog

from app.domain.errors import InvalidRequest, StorageFull
from app.domain.receipts import Rank
from app.domain.report_errors import StopIncomplete, WorkerNotFound
from app.domain.worker_state import WorkerState
from app.services.clock import Clock
from app.services.fleet import Fleet, Worker
from app.services.sealing import Sealing
from app.storage.accounting import (
    Receipt,
    load_pending_receipts,
    load_receipt,
    load_receipt_of,
)
from app.storage.database import Database
from app.storage.errors import StoreFull
from app.storage.operations import Committed, NewReceipt
from app.storage.receipts import ack_receipt, write_receipts
from shared.ids import GenerationId, ReportId

AckState = Literal["acked", "already", "stale", "unknown"]

WORKERS_SHOWN_MAX: Final = 10
_log = structlog.get_logger("accounting")


class Acked(NamedTuple):
    """What became of an acknowledgement: it counts, had counted before, is of a revision that was
    replaced (the receipt stays pending), or is of no receipt at all."""

    id: ReportId
    revision: int
    state: AckState


class Accounting:
    """Answers about receipts, and prepares stops."""

    def __init__(self, database: Database, fleet: Fleet, sealing: Sealing, clock: Clock) -> None:
        self._readers = database.readers
        self._writer = database.writer
        self._fleet = fleet
        self._sealing = sealing
        self._clock = clock

    async def prepare_stop(
        self, name: str | None, drain_s: float, abort_s: float, *, force: bool = False
    ) -> Receipt:
        """Close a worker, let its work come to rest, and return its receipt once that is committed.
        The process is left as it is: whoever asks may end it then. Asking again gives the same.

        Args:
            name: the worker's generation; None where there is but one.
            drain_s: how long foreground requests may go on.
            abort_s: how long each further step may take.
            force: give what is known if it does not come to rest, marked as incomplete.

        Raises:
            WorkerNotFound: there is none.
            InvalidRequest: there are several, and none is named.
            StopIncomplete: it did not come to rest, or what is known could not be written.
        """
        worker = self._find(name)
        if worker is None:
            return await self._over(name)
        try:
            await self._sealing.seal(worker, drain_s, abort_s)
        except StopIncomplete as error:
            await self._make_do(worker, error, abort_s, force=force)
        return await self._over(worker.generation)

    async def pending(self, limit: int) -> list[Receipt]:
        """Receipts that were not acknowledged, oldest first."""
        return await load_pending_receipts(self._readers, limit)

    async def ack(self, receipt_id: ReportId, revision: int | None) -> Acked:
        """This revision is booked; the latest, if none is named.

        Raises:
            StorageFull: the disk is full.
        """
        found = await load_receipt(self._readers, receipt_id)
        revision = revision or (0 if found is None else found.revision)
        if found is None or revision > found.revision:
            return Acked(receipt_id, revision, "unknown")
        if revision <= found.acked_revision:
            return Acked(receipt_id, revision, "already")
        try:
            await self._writer.submit(ack_receipt(receipt_id, revision, self._clock.now()))
        except StoreFull as error:
            raise StorageFull from error
        return Acked(receipt_id, revision, "acked" if revision == found.revision else "stale")

    def _find(self, name: str | None) -> Worker | None:
        workers = list(self._fleet)
        if name is not None:
            return next((worker for worker in workers if worker.generation == name), None)
        if len(workers) > 1:
            names = ", ".join(worker.generation for worker in workers[:WORKERS_SHOWN_MAX])
            text = f"There are several workers; name one of {names}."
            raise InvalidRequest(text, param="worker")
        return workers[0] if workers else None

    async def _over(self, name: str | None) -> Receipt:
        receipt = None if name is None else await self._receipt(GenerationId(name))
        if receipt is None:
            raise WorkerNotFound
        return receipt

    async def _receipt(self, generation: GenerationId) -> Receipt | None:
        return await load_receipt_of(self._readers, generation)

    async def _make_do(
        self, worker: Worker, error: StopIncomplete, patience_s: float, *, force: bool
    ) -> None:
        """Of a lost worker a receipt is on its way; of one that lives what is known may do."""
        lost = worker.state in (WorkerState.LOST, WorkerState.GONE)
        if not lost and not force:
            raise error
        receipt = NewReceipt(
            generation=worker.generation,
            asked=Rank.SNAPSHOT,
            now=self._clock.now(),
            detail=error.message,
        )
        if not await self._written([] if lost else [receipt], patience_s):
            raise StopIncomplete("The worker's receipt could not be written in time.")
        _log.warning("receipt_forced", generation=worker.generation, reason=error.message)

    async def _written(self, receipts: Sequence[NewReceipt], patience_s: float) -> bool:
        """Whether these, and all that was to be written before them, are committed by then."""
        future = self._writer.submit(write_receipts(receipts))
        done, _ = await asyncio.wait([future], timeout=max(patience_s, 1.0))
        return bool(done) and isinstance(future.result(), Committed)
