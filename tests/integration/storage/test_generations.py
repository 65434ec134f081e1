from pathlib import Path

import pytest

from app.domain.job import JobState, StopReason
from app.domain.worker_state import WorkerState
from app.storage.database import Database
from app.storage.endings import GiveBack
from app.storage.generations import (
    generation_gone,
    generation_process,
    generation_ready,
    insert_generation,
    lose_generation,
    stop_generation,
)
from app.storage.jobs import claim_jobs, insert_job, request_stop
from app.storage.operations import Committed, Void
from app.storage.reading import (
    load_attempts,
    load_commands,
    load_generation,
    load_generations,
    load_job,
    load_open_attempts,
    load_reports,
)
from shared.failures import Failure
from shared.ids import CommandId, GenerationId
from tests.integration.storage.making import (
    GENERATION,
    NOW,
    job_id,
    make_claim,
    make_ending,
    make_job,
    make_receipt,
    start_generation,
    start_job,
)

COMMITTED = Committed()
CRASH = Failure(code="worker_crashed", message="It died.", retryable=True)


async def test_a_generation_over_its_life(database: Database) -> None:
    submit = database.writer.submit
    row = insert_generation(GENERATION, "tiny", 3, Path("/logs/x"), NOW)
    assert await submit(row) == COMMITTED
    assert await submit(generation_process(GENERATION, 42, 4711)) == COMMITTED
    assert await submit(generation_ready(GENERATION, NOW, "print")) == COMMITTED
    assert await submit(generation_ready(GENERATION, NOW)) == Void("generation.ready", GENERATION)
    assert await submit(stop_generation(GENERATION)) == COMMITTED
    (found,) = await load_generations(database.readers)
    assert (found.state, found.gate) == (WorkerState.STOPPING, "stopping")
    assert (found.pid, found.pid_started, found.fingerprint) == (42, 4711, "print")
    assert (found.parent_epoch, found.log_path, found.ready_at) == (3, "/logs/x", NOW)
    assert await submit(generation_gone(GENERATION, NOW, 0, None, "left")) == COMMITTED
    assert await load_generations(database.readers) == []
    gone = await load_generation(database.readers, GENERATION)
    assert gone is not None
    assert (gone.state, gone.exit_code, gone.exit_reason) == (WorkerState.GONE, 0, "left")


async def test_losing_a_generation_decides_all_its_jobs_at_once(database: Database) -> None:
    await start_generation(database)
    ended, back = await start_job(database, 1), await start_job(database, 2)
    ending = make_ending(state=JobState.FAILED, finish_reason=None, failure=CRASH, complete=False)
    operation = lose_generation(
        GENERATION,
        NOW,
        "killed",
        [(ended, ending, None)],
        [GiveBack(job=back.id, attempt=1, outcome="lost", now=NOW, due_at=NOW)],
        make_receipt(),
    )
    assert await database.writer.submit(operation) == COMMITTED
    states = [await load_job(database.readers, job_id(n)) for n in (1, 2)]
    assert [row and row.state for row in states] == ["failed", "available"]
    outcomes = [(await load_attempts(database.readers, job_id(n)))[0].outcome for n in (1, 2)]
    assert outcomes == ["lost", "lost"]
    assert await load_commands(database.readers, GENERATION) == []
    reports = await load_reports(database.readers)
    assert [(report.kind, report.seq) for report in reports] == [("job", 1), ("generation", 2)]


@pytest.mark.parametrize("over", ["lost", "gone"])
async def test_a_generation_is_not_over_while_a_job_of_it_is_undecided(
    database: Database, over: str
) -> None:
    await start_generation(database)
    await start_job(database)
    operation = (
        lose_generation(GENERATION, NOW, "killed")
        if over == "lost"
        else generation_gone(GENERATION, NOW, None, 9, "killed")
    )
    assert await database.writer.submit(operation) == Void(f"generation.{over}", GENERATION)
    assert len(await load_open_attempts(database.readers, GENERATION)) == 1


async def test_a_loss_decided_before_a_stop_is_void_and_decided_again(database: Database) -> None:
    await start_generation(database)
    new = await start_job(database)
    await database.writer.submit(request_stop(job_id(1), StopReason.CANCEL, NOW))
    ending = make_ending(state=JobState.FAILED, finish_reason=None, failure=CRASH)
    first = lose_generation(GENERATION, NOW, "killed", [(new, ending, None)])
    assert await database.writer.submit(first) == Void("job.end", job_id(1))
    cancelled = make_ending(state=JobState.CANCELLED, finish_reason=None)
    again = lose_generation(GENERATION, NOW, "killed", [(new, cancelled, StopReason.CANCEL)])
    assert await database.writer.submit(again) == COMMITTED


async def test_a_generation_is_lost_once_and_keeps_its_reason_when_gone(
    database: Database,
) -> None:
    await start_generation(database)
    lose = lose_generation(GENERATION, NOW, "silent")
    assert await database.writer.submit(lose) == COMMITTED
    assert await database.writer.submit(lose) == Void("generation.lost", GENERATION)
    gone = generation_gone(GENERATION, NOW, None, 9, "killed")
    assert await database.writer.submit(gone) == COMMITTED
    assert await database.writer.submit(gone) == Void("generation.gone", GENERATION)
    row = await load_generation(database.readers, GENERATION)
    assert row is not None
    assert (row.exit_reason, row.exit_signal) == ("silent", 9)


async def test_a_generation_that_is_gone_takes_no_jobs(database: Database) -> None:
    """Also one whose loss was never declared: its gate is closed with its death."""
    await start_generation(database)
    gone = generation_gone(GENERATION, NOW, None, 9, "killed")
    assert await database.writer.submit(gone) == COMMITTED
    await database.writer.submit(insert_job(make_job()))
    claim = claim_jobs([(make_claim(), CommandId(1))])
    assert await database.writer.submit(claim) == Void("attempt.insert", job_id(1))


@pytest.mark.parametrize("state", ["loading", "stopping"])
async def test_a_generation_whose_gate_is_closed_takes_no_jobs(
    database: Database, state: str
) -> None:
    row = insert_generation(GENERATION, "tiny", database.parent_epoch, Path("log"), NOW)
    assert await database.writer.submit(row) == COMMITTED
    if state == "stopping":
        assert await database.writer.submit(generation_ready(GENERATION, NOW)) == COMMITTED
        assert await database.writer.submit(stop_generation(GENERATION)) == COMMITTED
        # What a load says that ends late opens nothing.
        late = await database.writer.submit(generation_ready(GENERATION, NOW))
        assert late == Void("generation.ready", GENERATION)
    await database.writer.submit(insert_job(make_job()))
    claim = claim_jobs([(make_claim(), CommandId(1))])
    assert await database.writer.submit(claim) == Void("attempt.insert", job_id(1))


async def test_generations_that_may_still_live_are_listed_oldest_first(
    database: Database,
) -> None:
    second = GenerationId("gen_00000000000000000000000000000002")
    await start_generation(database, second)
    await start_generation(database)
    assert [row.id for row in await load_generations(database.readers)] == [GENERATION, second]
