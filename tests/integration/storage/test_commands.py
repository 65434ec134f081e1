import msgspec
import pytest

from app.domain.job import StopReason
from app.storage.commands import preempt_job
from app.storage.database import Database
from app.storage.endings import GiveBack
from app.storage.generations import lose_generation
from app.storage.jobs import claim_jobs, give_back, request_stop
from app.storage.operations import Committed, Operation, Void
from app.storage.reading import load_commands
from shared.ids import CommandId, GenerationId
from tests.integration.storage.making import (
    GENERATION,
    NOW,
    job_id,
    make_claim,
    start_generation,
    start_job,
)

COMMITTED = Committed()
VOID = Void("command.preempt", job_id(1))
BACK = GiveBack(job=job_id(1), attempt=1, outcome="preempted", now=NOW, due_at=NOW)


def preempt(command: int = 9, attempt: int = 1) -> Operation:
    """The first job is to be given back."""
    return preempt_job(job_id(1), attempt, GENERATION, CommandId(command), NOW)


async def test_a_running_attempt_gets_its_preempt_behind_what_was_sent_before(
    database: Database,
) -> None:
    await start_generation(database)
    await start_job(database)
    assert await database.writer.submit(preempt()) == COMMITTED
    commands = await load_commands(database.readers, GENERATION)
    assert [(c.id, c.kind, c.job, c.attempt) for c in commands] == [(9, "preempt", job_id(1), 1)]


async def test_a_row_that_was_asked_for_is_not_asked_for_again(database: Database) -> None:
    await start_generation(database)
    await start_job(database)
    await database.writer.submit(preempt(9))
    assert await database.writer.submit(preempt(10)) == VOID
    assert [c.id for c in await load_commands(database.readers, GENERATION)] == [9]


async def test_going_back_answers_the_preempt_and_the_next_attempt_may_be_asked_for(
    database: Database,
) -> None:
    await start_generation(database)
    await start_job(database)
    await database.writer.submit(preempt(9))
    await database.writer.submit(give_back(BACK))
    assert await load_commands(database.readers, GENERATION) == []
    await database.writer.submit(claim_jobs([(make_claim(attempt=2), CommandId(10))]))
    assert await database.writer.submit(preempt(11, attempt=1)) == VOID
    assert await database.writer.submit(preempt(11, attempt=2)) == COMMITTED


async def test_a_job_that_is_to_stop_is_not_preempted(database: Database) -> None:
    await start_generation(database)
    await start_job(database)
    await database.writer.submit(request_stop(job_id(1), StopReason.CANCEL, NOW))
    assert await database.writer.submit(preempt()) == VOID


@pytest.mark.parametrize("end", ["gave back", "lost"])
async def test_an_attempt_that_is_over_is_not_preempted(database: Database, end: str) -> None:
    await start_generation(database)
    await start_job(database)
    lost = msgspec.structs.replace(BACK, outcome="lost")
    over = (
        give_back(BACK)
        if end == "gave back"
        else lose_generation(GENERATION, NOW, "died", given_back=[lost])
    )
    assert await database.writer.submit(over) == COMMITTED
    assert await database.writer.submit(preempt()) == VOID


async def test_a_generation_that_does_not_hold_the_job_is_not_told(database: Database) -> None:
    other = GenerationId("gen_00000000000000000000000000000002")
    await start_generation(database)
    await start_generation(database, other)
    await start_job(database)
    operation = preempt_job(job_id(1), 1, other, CommandId(9), NOW)
    assert await database.writer.submit(operation) == VOID
