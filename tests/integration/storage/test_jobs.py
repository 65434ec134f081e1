from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from app.domain.job import Durability, JobClass, JobState, StopReason
from app.storage.database import Database
from app.storage.endings import GiveBack
from app.storage.errors import OperationFailed, PayloadDamaged
from app.storage.generations import lose_generation
from app.storage.jobs import (
    adopt_stored_jobs,
    claim_jobs,
    end_running_job,
    end_waiting_job,
    give_back,
    insert_job,
    make_due,
    request_stop,
)
from app.storage.operations import Committed, Void
from app.storage.reading import (
    highest_id,
    load_attempts,
    load_commands,
    load_job,
    load_jobs,
    load_open_attempts,
    load_open_jobs,
    load_reports,
    load_request,
)
from shared.failures import Failure
from shared.ids import CommandId, GenerationId, JobId
from tests.integration.storage.making import (
    GENERATION,
    NOW,
    job_id,
    make_claim,
    make_ending,
    make_job,
    opened,
    query,
    start_generation,
    start_job,
    tamper,
)

COMMITTED = Committed()


async def test_a_job_comes_back_as_it_was_submitted(database: Database) -> None:
    new = make_job(
        priority=-5,
        job_class=JobClass.BATCH,
        settings=b'{"max_tokens":9}',
        attempt_timeout_s=0.25,
        keep_s=600.0,
        tags={"team": "a"},
        retry_of=job_id(9),
    )
    assert await database.writer.submit(insert_job(new)) == COMMITTED
    row = await load_job(database.readers, new.id)
    assert row is not None
    assert row.new == msgspec.structs.replace(new, request=None)
    assert (row.state, row.attempt, row.events) == (JobState.AVAILABLE, 0, 1)
    assert (row.tags, row.retry_of) == ({"team": "a"}, job_id(9))
    assert await load_request(database.readers, new.id) == b"a prompt"


async def test_another_tenants_job_is_not_found(database: Database) -> None:
    await database.writer.submit(insert_job(make_job(tenant="a")))
    assert await load_job(database.readers, job_id(1), "b") is None
    assert await load_job(database.readers, job_id(1), "a") is not None


async def test_the_prompt_of_an_attached_job_is_nowhere_on_disk(
    database: Database, data_dir: Path
) -> None:
    new = make_job(durability=Durability.ATTACHED, request=None)
    await database.writer.submit(insert_job(new))
    assert query(data_dir, "SELECT request FROM job") == [(None,)]
    refused = insert_job(make_job(2, durability=Durability.ATTACHED))
    with pytest.raises(OperationFailed, match="request_iff_not_attached"):
        await database.writer.submit(refused)


async def test_a_flipped_bit_in_a_request_is_found_when_it_is_read(
    data_dir: Path,
) -> None:
    async with opened(data_dir) as database:
        await database.writer.submit(insert_job(make_job()))
    tamper(data_dir, "UPDATE job SET request = cast(replace(request, 'a', 'c') AS BLOB)")
    async with opened(data_dir) as database:
        with pytest.raises(PayloadDamaged):
            await load_request(database.readers, job_id(1))


async def test_a_claim_rides_in_the_commit_of_the_insert(database: Database) -> None:
    await start_generation(database)
    before = database.writer.counts.committed.commits
    await start_job(database)
    assert database.writer.counts.committed.commits == before + 1
    row = await load_job(database.readers, job_id(1))
    assert row is not None
    assert (row.state, row.attempt, row.claimed_at) == (JobState.RUNNING, 1, NOW)
    (held,) = await load_open_attempts(database.readers, GENERATION)
    assert (held.job, held.number, held.command) == (job_id(1), 1, 1)


async def test_a_job_claimed_for_a_lost_worker_is_not_inserted(database: Database) -> None:
    await start_generation(database)
    await database.writer.submit(lose_generation(GENERATION, NOW, "died"))
    operation = insert_job(make_job(), make_claim(), CommandId(1))
    assert await database.writer.submit(operation) == Void("attempt.insert", job_id(1))
    assert await load_job(database.readers, job_id(1)) is None
    assert await database.writer.submit(insert_job(make_job())) == COMMITTED


async def test_a_claim_handed_over_behind_the_loss_of_its_worker_is_void(
    database: Database,
) -> None:
    await start_generation(database)
    await database.writer.submit(insert_job(make_job()))
    lost, claimed = database.writer.submit_many(
        [
            lose_generation(GENERATION, NOW, "died"),
            claim_jobs([(make_claim(), CommandId(1))]),
        ]
    )
    assert (await lost, await claimed) == (COMMITTED, Void("attempt.insert", job_id(1)))
    row = await load_job(database.readers, job_id(1))
    assert row is not None
    assert row.state is JobState.AVAILABLE


async def test_a_job_is_claimed_once(database: Database) -> None:
    await start_generation(database)
    await database.writer.submit(insert_job(make_job()))
    first, second = database.writer.submit_many(
        [claim_jobs([(make_claim(), CommandId(1))]), claim_jobs([(make_claim(), CommandId(2))])]
    )
    assert (await first, await second) == (COMMITTED, Void("job.claim", job_id(1)))


async def test_a_claim_handed_over_behind_a_stop_is_void(database: Database) -> None:
    """In one commit the claim's statement would run first and win."""
    await start_generation(database)
    await database.writer.submit(insert_job(make_job()))
    stopped, claimed = database.writer.submit_many(
        [
            request_stop(job_id(1), StopReason.CANCEL, NOW),
            claim_jobs([(make_claim(), CommandId(1))]),
        ]
    )
    assert (await stopped, await claimed) == (COMMITTED, Void("job.claim", job_id(1)))


async def test_a_claim_with_a_wrong_attempt_number_is_void(database: Database) -> None:
    await start_generation(database)
    await database.writer.submit(insert_job(make_job()))
    claim = claim_jobs([(make_claim(attempt=2), CommandId(1))])
    assert await database.writer.submit(claim) == Void("job.claim", job_id(1))


async def test_a_scheduled_job_waits_until_it_is_due(database: Database) -> None:
    await start_generation(database)
    later = NOW + timedelta(hours=1)
    await database.writer.submit(insert_job(make_job(scheduled_at=later)))
    early = claim_jobs([(make_claim(), CommandId(1))])
    assert await database.writer.submit(early) == Void("job.claim", job_id(1))
    assert await database.writer.submit(make_due(job_id(1), later)) == COMMITTED
    assert await database.writer.submit(make_due(job_id(1), later)) == Void("job.due", job_id(1))
    assert await database.writer.submit(claim_jobs([(make_claim(), CommandId(1))])) == COMMITTED


async def test_the_first_stop_reason_stays(database: Database) -> None:
    await start_generation(database)
    await start_job(database)
    cancel = request_stop(
        job_id(1),
        StopReason.CANCEL,
        NOW,
        command=CommandId(2),
        generation=GENERATION,
        attempt=1,
    )
    deadline = request_stop(job_id(1), StopReason.DEADLINE, NOW)
    first, second = database.writer.submit_many([cancel, deadline])
    assert (await first, await second) == (COMMITTED, Void("job.stop", job_id(1)))
    row = await load_job(database.readers, job_id(1))
    assert row is not None
    assert (row.stop_reason, row.stop_requested_at) == (StopReason.CANCEL, NOW)
    kinds = [command.kind for command in await load_commands(database.readers, GENERATION)]
    assert kinds == ["cancel"]


@pytest.mark.parametrize(
    ("attempt", "generation"), [(2, GENERATION), (1, GenerationId("gen_other"))]
)
async def test_no_cancel_is_written_for_an_attempt_that_is_not_there(
    database: Database, attempt: int, generation: GenerationId
) -> None:
    await start_generation(database)
    await start_job(database)
    stop = request_stop(
        job_id(1),
        StopReason.CANCEL,
        NOW,
        command=CommandId(2),
        generation=generation,
        attempt=attempt,
    )
    assert await database.writer.submit(stop) == COMMITTED
    assert await load_commands(database.readers, GENERATION) == []


async def test_a_waiting_job_ends_with_its_report(database: Database) -> None:
    new = make_job()
    await database.writer.submit(insert_job(new))
    ending = make_ending(attempt=0, state=JobState.CANCELLED, finish_reason=None)
    operation = end_waiting_job(new, ending, JobState.AVAILABLE)
    assert await database.writer.submit(operation) == COMMITTED
    row = await load_job(database.readers, job_id(1))
    assert row is not None
    assert (row.state, row.finalized_at) == (JobState.CANCELLED, ending.finalized_at)
    assert (row.usage, row.events) == (ending.usage, 2)
    (report,) = await load_reports(database.readers)
    assert (report.subject, report.outcome, report.seq) == (job_id(1), "cancelled", 1)


async def test_a_job_ends_once_whatever_is_tried_afterwards(database: Database) -> None:
    await start_generation(database)
    new = make_job()
    await database.writer.submit(insert_job(new))
    ending = make_ending(attempt=0, state=JobState.CANCELLED, finish_reason=None)
    await database.writer.submit(end_waiting_job(new, ending, JobState.AVAILABLE))
    later = [
        end_waiting_job(new, ending, JobState.AVAILABLE),
        claim_jobs([(make_claim(), CommandId(1))]),
        request_stop(job_id(1), StopReason.CANCEL, NOW),
        make_due(job_id(1), NOW),
    ]
    for operation in later:
        assert isinstance(await database.writer.submit(operation), Void)
    assert len(await load_reports(database.readers)) == 1


async def test_a_claimed_job_does_not_end_as_a_waiting_one(database: Database) -> None:
    await start_generation(database)
    new = await start_job(database)
    ending = make_ending(attempt=0, state=JobState.CANCELLED, finish_reason=None)
    operation = end_waiting_job(new, ending, JobState.AVAILABLE)
    assert await database.writer.submit(operation) == Void("job.end_waiting", job_id(1))
    assert await load_reports(database.readers) == []


@pytest.mark.parametrize(
    ("outcome", "state", "failures", "losses", "preemptions"),
    [
        ("lost", JobState.AVAILABLE, 0, 1, 0),
        ("preempted", JobState.AVAILABLE, 0, 0, 1),
        ("refused", JobState.AVAILABLE, 0, 0, 0),
        ("failed", JobState.RETRYABLE, 1, 0, 0),
    ],
)
async def test_a_job_given_back_waits_again_and_only_its_own_failure_counts(
    database: Database, outcome: str, state: JobState, failures: int, losses: int, preemptions: int
) -> None:
    await start_generation(database)
    await start_job(database)
    due = NOW + timedelta(seconds=3)
    back = GiveBack(job=job_id(1), attempt=1, outcome=outcome, now=NOW, due_at=due)  # pyright: ignore[reportArgumentType]
    assert await database.writer.submit(give_back(back)) == COMMITTED
    row = await load_job(database.readers, job_id(1))
    assert row is not None
    assert (row.state, row.attempt, row.available_at) == (state, 1, due)
    assert (row.failures, row.losses, row.preemptions) == (failures, losses, preemptions)
    assert await load_commands(database.readers, GENERATION) == []
    (attempt,) = await load_attempts(database.readers, job_id(1))
    assert (attempt.outcome, attempt.ended_at) == (outcome, NOW)


async def test_a_job_with_a_stop_pending_is_not_given_back(database: Database) -> None:
    await start_generation(database)
    await start_job(database)
    await database.writer.submit(request_stop(job_id(1), StopReason.CANCEL, NOW))
    back = GiveBack(job=job_id(1), attempt=1, outcome="lost", now=NOW, due_at=NOW)
    assert await database.writer.submit(give_back(back)) == Void("job.give_back", job_id(1))


async def test_an_ending_decided_before_a_stop_was_asked_for_is_void(database: Database) -> None:
    await start_generation(database)
    new = await start_job(database)
    await database.writer.submit(request_stop(job_id(1), StopReason.CANCEL, NOW))
    failed = make_ending(
        state=JobState.FAILED, finish_reason=None, failure=Failure(code="x", message="y")
    )
    assert await database.writer.submit(end_running_job(new, failed, None)) == Void(
        "job.end", job_id(1)
    )
    cancelled = make_ending(state=JobState.CANCELLED, finish_reason=None)
    operation = end_running_job(new, cancelled, StopReason.CANCEL)
    assert await database.writer.submit(operation) == COMMITTED
    (attempt,) = await load_attempts(database.readers, job_id(1))
    assert attempt.outcome == "stopped"


async def test_open_stored_jobs_become_durable_at_a_start(database: Database) -> None:
    stored = make_job(1, durability=Durability.STORED)
    ended = make_job(2, durability=Durability.STORED)
    attached = make_job(3, durability=Durability.ATTACHED, request=None)
    for new in (stored, ended, attached):
        await database.writer.submit(insert_job(new))
    ending = make_ending(2, attempt=0, state=JobState.CANCELLED, finish_reason=None)
    await database.writer.submit(end_waiting_job(ended, ending, JobState.AVAILABLE))
    assert await database.writer.submit(adopt_stored_jobs()) == COMMITTED
    open_jobs = await load_open_jobs(database.readers)
    assert [row.new.durability for row in open_jobs] == ["durable", "attached"]


async def test_jobs_are_listed_newest_first_a_page_at_a_time(database: Database) -> None:
    futures = database.writer.submit_many([insert_job(make_job(n)) for n in range(1, 6)])
    for future in futures:
        await future
    first = await load_jobs(database.readers, "default", limit=2)
    assert [row.new.id for row in first] == [job_id(5), job_id(4)]
    rest = await load_jobs(database.readers, "default", after=first[-1].new.id)
    assert [row.new.id for row in rest] == [job_id(3), job_id(2), job_id(1)]
    assert await load_jobs(database.readers, "default", states=(JobState.FAILED,)) == []


async def test_the_highest_id_is_over_jobs_and_generations(database: Database) -> None:
    assert await highest_id(database.readers) is None
    await start_generation(database)
    assert await highest_id(database.readers) == f"{1:032x}"
    await database.writer.submit(insert_job(make_job(255)))
    assert await highest_id(database.readers) == f"{255:032x}"


async def test_an_unknown_job_is_none(database: Database) -> None:
    assert await load_job(database.readers, JobId("job_none")) is None
    assert await load_request(database.readers, JobId("job_none")) is None
