"""Receipts of generations: one each, by what the store holds at the commit, better ones on top."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.domain.job import Durability
from app.domain.receipts import Rank
from app.storage.accounting import load_pending_receipts
from app.storage.database import Database
from app.storage.errors import OperationFailed
from app.storage.frames import FrameOperation
from app.storage.generations import (
    generation_gone,
    insert_generation,
    lose_generation,
    stop_generation,
)
from app.storage.operations import Committed, NewReceipt, Operation, Outcome, Void
from app.storage.reading import load_commands, load_generation, load_missing_receipts, load_reports
from app.storage.receipts import ack_receipt, seal_command, write_receipts
from app.storage.reports import GenerationReport
from app.storage.verify import verify
from shared.ids import CommandId, GenerationId, report_id
from shared.totals import GenerationTotals
from tests.integration.storage.making import (
    GENERATION,
    NOW,
    job_id,
    make_ending,
    make_job,
    make_receipt,
    opened,
    query,
    start_generation,
    start_job,
    tamper,
)

COMMITTED = Committed()
PROMPT, CACHED = 7, 2
ATTACHED: dict[str, Any] = {"durability": Durability.ATTACHED, "request": None}
"""Of which no journal is kept."""


async def submit(database: Database, *operations: Operation) -> list[Outcome]:
    """Commit these, in one commit where they may share it."""
    futures = database.writer.submit_many(operations)
    return [await future for future in futures]


def served(seq: int, number: int, tokens: int, *, ends: bool = True) -> FrameOperation:
    """A frame in which the n-th job is accepted, says so much and ends."""
    frame = FrameOperation(GENERATION, seq)
    frame.accepted(
        job_id(number),
        1,
        now=NOW,
        prompt_tokens=PROMPT,
        cached_tokens=CACHED,
        digest="d",
        fingerprint="f",
    )
    frame.tokens(job_id(number), 1, 0, tokens)
    if ends:
        usage = make_ending().usage
        usage = msgspec.structs.replace(
            usage,
            prompt_tokens=PROMPT,
            cached_tokens=CACHED,
            completion_tokens=tokens,
            reasoning_tokens=0,
        )
        ending = make_ending(number, usage=usage)
        frame.ended(make_job(number, **ATTACHED), ending, stop_reason=None)
    return frame


async def receipts(database: Database) -> list[tuple[int, int, bool, GenerationReport]]:
    """Revision, place, tombstone and content of all there are."""
    return [
        (
            row.revision,
            row.seq,
            row.tombstone,
            msgspec.json.decode(row.payload, type=GenerationReport),
        )
        for row in await load_reports(database.readers)
        if row.kind == "generation"
    ]


async def standing(database: Database) -> GenerationReport:
    """The one receipt that counts."""
    (found,) = [report for *_, tombstone, report in await receipts(database) if not tombstone]
    return found


async def test_a_crash_receipt_counts_what_was_folded_up_to_its_own_commit(
    database: Database,
) -> None:
    await start_generation(database)
    await start_job(database, **ATTACHED)
    lose = lose_generation(GENERATION, NOW, "killed", receipt=make_receipt(detail="killed"))
    assert await submit(database, served(1, 1, 5).build(), lose) == [COMMITTED] * 2
    report = await standing(database)
    assert (report.outcome, report.reason, report.complete) == ("crashed", "worker_lost", False)
    assert (report.jobs, report.usage.prompt_tokens, report.usage.completion_tokens) == (1, 7, 5)
    assert (report.detail, report.worker, report.ended_at) == ("killed", None, NOW)
    (row,) = [row for row in await load_reports(database.readers) if row.kind == "generation"]
    assert row.id == report_id("generation", GENERATION)
    assert await verify(database.readers) == []


async def test_a_generation_that_is_lost_and_then_gone_has_one_receipt(database: Database) -> None:
    await start_generation(database)
    await submit(database, lose_generation(GENERATION, NOW, "x", receipt=make_receipt()))
    gone = generation_gone(GENERATION, NOW, None, 9, "x", make_receipt())
    assert await submit(database, gone) == [COMMITTED]
    assert [revision for revision, *_ in await receipts(database)] == [1]
    assert query(database.path.parent, "SELECT last FROM feed") == [(1,)]


async def stopped(database: Database, tokens: int = 5) -> None:
    """A worker that has served one job and takes no more."""
    await start_generation(database)
    await start_job(database, **ATTACHED)
    outcomes = await submit(database, served(1, 1, tokens).build(), stop_generation(GENERATION))
    assert outcomes == [COMMITTED] * 2


def answer(own: GenerationTotals, seq: int = 2) -> Operation:
    """The frame in which the worker says what it has counted."""
    frame = FrameOperation(GENERATION, seq)
    frame.receipt(NewReceipt(generation=GENERATION, asked=Rank.SEALED, now=NOW, own=own))
    return frame.build()


async def test_a_worker_that_has_counted_the_same_is_sealed(database: Database) -> None:
    await stopped(database)
    assert await submit(database, answer(GenerationTotals(1, 7, 2, 5))) == [COMMITTED]
    report = await standing(database)
    assert (report.outcome, report.reason, report.complete) == ("sealed", "stopped", True)
    assert report.worker is not None
    assert (report.worker.attempts, report.worker.completion_tokens) == (1, 5)
    gone = generation_gone(GENERATION, NOW, 0, None, "left", make_receipt())
    assert await submit(database, gone) == [COMMITTED]
    assert len(await receipts(database)) == 1
    assert await verify(database.readers) == []


@pytest.mark.parametrize(
    "own",
    [
        GenerationTotals(1, 7, 2, 6),
        GenerationTotals(2, 7, 2, 5),
        GenerationTotals(1, 8, 2, 5),
        GenerationTotals(1, 7, 0, 5),
    ],
)
async def test_a_worker_that_has_counted_otherwise_is_not(
    database: Database, own: GenerationTotals
) -> None:
    await stopped(database)
    await submit(database, answer(own))
    report = await standing(database)
    assert (report.outcome, report.reason, report.complete) == ("snapshot", "totals_differ", False)
    assert (report.jobs, report.usage.completion_tokens) == (1, 5)
    assert report.worker is not None
    assert report.worker.completion_tokens == own.completion_tokens


async def test_a_worker_that_was_never_ready_has_zeros_that_lack_nothing(
    database: Database,
) -> None:
    row = insert_generation(GENERATION, "tiny", 1, Path("log"), NOW)
    stop = stop_generation(GENERATION, make_receipt(Rank.SEALED))
    assert await submit(database, row, stop) == [COMMITTED] * 2
    report = await standing(database)
    assert (report.outcome, report.reason, report.complete) == ("sealed", "never_ready", True)
    assert (report.jobs, report.usage.completion_tokens, report.ready_at) == (0, 0, None)


async def test_one_that_died_before_it_was_ready_lacks_nothing_either(database: Database) -> None:
    row = insert_generation(GENERATION, "tiny", 1, Path("log"), NOW)
    await submit(database, row, lose_generation(GENERATION, NOW, "x", receipt=make_receipt()))
    report = await standing(database)
    assert (report.outcome, report.reason, report.complete) == ("crashed", "never_ready", True)


async def test_a_better_receipt_takes_a_new_place_and_the_old_one_stays_as_a_tombstone(
    database: Database,
) -> None:
    await stopped(database)
    forced = write_receipts([make_receipt(Rank.SNAPSHOT)])
    assert await submit(database, forced) == [COMMITTED]
    assert await submit(database, answer(GenerationTotals(1, 7, 2, 5))) == [COMMITTED]
    (first, second) = await receipts(database)
    assert (first[:3], second[:3]) == ((1, 2, True), (2, 3, False))
    assert (first[3].reason, second[3].reason) == ("forced", "stopped")
    assert query(database.path.parent, "SELECT rank, revision FROM receipt") == [(3, 2)]


async def test_a_forced_receipt_is_made_up_for_when_the_worker_dies_having_served_more(
    database: Database,
) -> None:
    await start_generation(database)
    await start_job(database, **ATTACHED)
    await submit(database, served(1, 1, 3, ends=False).build(), stop_generation(GENERATION))
    await submit(database, write_receipts([make_receipt(Rank.SNAPSHOT)]))
    frame = FrameOperation(GENERATION, 2)
    frame.tokens(job_id(1), 1, 0, 4)
    usage = msgspec.structs.replace(make_ending().usage, completion_tokens=7, reasoning_tokens=0)
    lost = [(make_job(**ATTACHED), make_ending(usage=usage, complete=False), None)]
    lose = lose_generation(GENERATION, NOW, "x", lost, receipt=make_receipt())
    assert await submit(database, frame.build(), lose) == [COMMITTED] * 2
    found = [(r, report.usage.completion_tokens) for r, _, _, report in await receipts(database)]
    assert found == [(1, 3), (2, 7)]
    assert query(database.path.parent, "SELECT rank, revision FROM receipt") == [(2, 2)]


async def test_a_receipt_that_says_no_more_changes_nothing(database: Database) -> None:
    await stopped(database)
    forced = write_receipts([make_receipt(Rank.SNAPSHOT)])
    await submit(database, forced)
    assert await submit(database, forced) == [COMMITTED]
    assert [revision for revision, *_ in await receipts(database)] == [1]


async def test_a_sealed_receipt_is_final_also_by_the_stores_own_rule(
    database: Database, data_dir: Path
) -> None:
    await stopped(database)
    await submit(database, answer(GenerationTotals(1, 7, 2, 5)))
    await database.close()
    with pytest.raises(Exception, match="a sealed receipt never changes"):
        tamper(data_dir, "UPDATE receipt SET completion_tokens = 6")


async def test_receipts_in_a_commit_that_is_replayed_operation_by_operation(
    database: Database,
) -> None:
    other = GenerationId("gen_00000000000000000000000000000002")
    await stopped(database)
    await start_generation(database, other)
    void = lose_generation(GenerationId("gen_none"), NOW, "x")
    lose = lose_generation(other, NOW, "x", receipt=make_receipt(generation=other))
    outcomes = await submit(database, answer(GenerationTotals(1, 7, 2, 5)), void, lose)
    assert outcomes == [COMMITTED, Void("generation.lost", "gen_none"), COMMITTED]
    assert [seq for _, seq, *_ in await receipts(database)] == [2, 3]
    assert await verify(database.readers) == []


async def test_a_receipt_that_cannot_be_written_undoes_what_it_belongs_to(
    database: Database,
) -> None:
    await start_generation(database)
    wrong = make_receipt(generation=GenerationId("gen_none"))
    with pytest.raises(OperationFailed, match="no generation gen_none"):
        await submit(database, lose_generation(GENERATION, NOW, "x", receipt=wrong))
    row = await load_generation(database.readers, GENERATION)
    assert row is not None
    assert row.state == "ready"


async def test_a_seal_is_asked_for_only_when_nothing_is_left_to_do(database: Database) -> None:
    await start_generation(database)
    seal = seal_command(GENERATION, CommandId(9), NOW)
    void: list[Any] = [Void("command.seal", GENERATION)]
    assert await submit(database, seal) == void
    await start_job(database, **ATTACHED)
    await submit(database, stop_generation(GENERATION))
    assert await submit(database, seal) == void
    await submit(database, served(1, 1, 5).build())
    assert await submit(database, seal) == [COMMITTED]
    commands = await load_commands(database.readers, GENERATION)
    assert [(row.kind, row.job) for row in commands] == [("seal", None)]


async def test_what_is_missing_at_boot_is_found_and_made_up_for_once(database: Database) -> None:
    await start_generation(database)
    await submit(database, lose_generation(GENERATION, NOW, "by an earlier version"))
    assert await load_missing_receipts(database.readers) == [GENERATION]
    missing = write_receipts([make_receipt()])
    assert await submit(database, missing, missing) == [COMMITTED] * 2
    assert await load_missing_receipts(database.readers) == []
    assert [revision for revision, *_ in await receipts(database)] == [1]


async def test_damaged_receipts_hold_up_no_other_however_few_are_asked_for(
    data_dir: Path,
) -> None:
    generations = [GenerationId(f"gen_{number:032x}") for number in range(1, 6)]
    async with opened(data_dir) as database:
        for generation in generations:
            await start_generation(database, generation)
            receipt = make_receipt(generation=generation)
            lose = lose_generation(generation, NOW, "x", receipt=receipt)
            assert await submit(database, lose) == [COMMITTED]
    tamper(data_dir, "DROP TRIGGER report_is_immutable")
    for broken in (generations[0], generations[1], generations[3]):
        tamper(data_dir, f"UPDATE report SET payload = x'7b7d' WHERE subject = '{broken}'")
    whole = [generations[2], generations[4]]
    async with opened(data_dir) as database:
        for limit, shown in ((1, whole[:1]), (2, whole), (5, whole)):
            found = await load_pending_receipts(database.readers, limit)
            assert [one.generation for one in found] == shown, limit
            assert all(one.report is not None for one in found)
        (first, _) = await load_pending_receipts(database.readers, 5)
        await submit(database, ack_receipt(first.id, 1, NOW))
        (rest,) = await load_pending_receipts(database.readers, 1)
        assert rest.generation == whole[1]
