"""Receipts of worker generations: written at the commit, sealed, acknowledged, made up for at boot.

A receipt's totals are read inside the transaction that tells of it, after everything else in it: so
they hold exactly what the store holds, whoever shares the commit. The row in ``receipt`` is what
was last told; the report is what is shown, under an id derived from the generation. A row lives as
long as its generation, so that neither a restart nor a deleted report leads to a second one.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from app.domain.job import Usage
from app.domain.receipts import OUTCOMES, Rank, Standing, Totals, observe, revised
from app.storage.driver import Driver
from app.storage.encoding import micros, moment
from app.storage.operations import NewReceipt, NewReport, Operation, Params, Statement, Step
from app.storage.operations import Rank as CommitRank
from app.storage.reports import GenerationReport, WorkerCounts, generation_report
from shared.ids import CommandId, GenerationId, ReportId, report_id

_GENERATION: Final = (
    "SELECT model, created_at, ready_at, ended_at, jobs, prompt_tokens, cached_tokens,"
    " completion_tokens, reasoning_tokens FROM generation WHERE id = :generation"
)
_STANDING: Final = (
    "SELECT revision, rank, jobs, prompt_tokens, cached_tokens, completion_tokens,"
    " reasoning_tokens FROM receipt WHERE generation = :generation"
)
_STAND: Final = (
    "INSERT INTO receipt (generation, id, revision, rank, jobs, prompt_tokens, cached_tokens,"
    " completion_tokens, reasoning_tokens) VALUES (:generation, :id, :revision, :rank, :jobs,"
    " :prompt_tokens, :cached_tokens, :completion_tokens, :reasoning_tokens)"
    " ON CONFLICT (generation) DO UPDATE SET revision = excluded.revision, rank = excluded.rank,"
    " jobs = excluded.jobs, prompt_tokens = excluded.prompt_tokens,"
    " cached_tokens = excluded.cached_tokens, completion_tokens = excluded.completion_tokens,"
    " reasoning_tokens = excluded.reasoning_tokens"
)
_TOMBSTONE: Final = (
    "UPDATE report SET tombstone = 1 WHERE subject = :generation AND kind = 'generation'"
    " AND revision < :revision AND tombstone = 0"
)

_SEAL: Final = Statement(
    "command.seal",
    CommitRank.COMMAND_SEAL,
    "INSERT INTO command (id, generation, kind, created_at, params)"
    " SELECT :id, :generation, 'seal', :now, x'' FROM generation"
    " WHERE id = :generation AND state = 'stopping' AND gate = 'stopping'"
    " AND NOT EXISTS (SELECT 1 FROM attempt WHERE generation = :generation AND outcome IS NULL)",
)

_ACK: Final = Statement(
    "receipt.ack",
    CommitRank.RECEIPT_ACK,
    "UPDATE receipt SET acked_revision = max(acked_revision, :revision),"
    " acked_at = iif(acked_revision < :revision, :now, acked_at)"
    " WHERE id = :id AND revision >= :revision",
)


def settle(driver: Driver, asked: NewReceipt) -> NewReport | None:
    """The receipt that becomes visible with this commit; None when one stands that is as good.
    Called in the transaction, after all its statements.

    Raises:
        ValueError: there is no such generation.
    """
    params = {"generation": asked.generation}
    row = driver.execute(_GENERATION, params).fetchone()
    if row is None:
        raise ValueError(f"no generation {asked.generation}")
    model, created_at, ready_at, ended_at, *counts = row
    totals = _totals(counts)
    seen = observe(asked.asked, totals, ever_ready=ready_at is not None, own=asked.own)
    standing = revised(_standing(driver, asked.generation), seen)
    if standing is None:
        return None
    _stand(driver, asked.generation, standing)
    payload = GenerationReport(
        generation=asked.generation,
        outcome=OUTCOMES[seen.rank],
        reason=seen.grounds,
        detail=asked.detail,
        complete=seen.complete,
        usage=_usage(totals),
        worker=None if asked.own is None else WorkerCounts.of(asked.own),
        model=model,
        jobs=totals.jobs,
        created_at=moment(created_at),
        ready_at=None if ready_at is None else moment(ready_at),
        ended_at=asked.now if ended_at is None else moment(ended_at),
    )
    return generation_report(payload, revision=standing.revision, rank=standing.rank)


def seal_command(generation: GenerationId, command: CommandId, now: datetime) -> Operation:
    """The worker is to say what it has counted: its ``Seal``, to be sent until it is answered. Void
    unless it is stopping and every attempt on it has ended."""
    params: Params = {"id": command, "generation": generation, "now": micros(now)}
    return Operation(
        name="seal_command",
        subjects=(generation,),
        steps=(Step(_SEAL, params, generation),),
    )


def write_receipts(receipts: Sequence[NewReceipt]) -> Operation:
    """Receipts on their own: what is missing at boot, or was asked for by force."""
    return Operation(
        name="write_receipts",
        subjects=tuple(receipt.generation for receipt in receipts),
        steps=(),
        receipts=tuple(receipts),
    )


def ack_receipt(receipt_id: ReportId, revision: int, now: datetime) -> Operation:
    """This revision has arrived where receipts are booked. One that is not the latest leaves the
    receipt pending. Void when there is no such revision. A full disk is answered."""
    params: Params = {"id": receipt_id, "revision": revision, "now": micros(now)}
    return Operation(
        name="ack_receipt",
        subjects=(receipt_id,),
        steps=(Step(_ACK, params, receipt_id),),
        patient=False,
    )


def _totals(counts: Sequence[int]) -> Totals:
    return Totals(
        jobs=counts[0],
        prompt_tokens=counts[1],
        cached_tokens=counts[2],
        completion_tokens=counts[3],
        reasoning_tokens=counts[4],
    )


def _usage(totals: Totals) -> Usage:
    return Usage(
        prompt_tokens=totals.prompt_tokens,
        cached_tokens=totals.cached_tokens,
        completion_tokens=totals.completion_tokens,
        reasoning_tokens=totals.reasoning_tokens,
    )


def _standing(driver: Driver, generation: GenerationId) -> Standing | None:
    row = driver.execute(_STANDING, {"generation": generation}).fetchone()
    if row is None:
        return None
    revision, rank, *counts = row
    return Standing(revision=revision, rank=Rank(rank), totals=_totals(counts))


def _stand(driver: Driver, generation: GenerationId, standing: Standing) -> None:
    """This receipt stands from now on; those before it become tombstones."""
    row = {
        "generation": generation,
        "id": report_id("generation", generation),
        "revision": standing.revision,
        "rank": int(standing.rank),
        **msgspec.structs.asdict(standing.totals),
    }
    driver.execute(_STAND, row)
    driver.execute(_TOMBSTONE, {"generation": row["generation"], "revision": standing.revision})
