import asyncio
from datetime import timedelta

import msgspec
import pytest

from app.domain.job import JobState, StopReason, Usage
from app.storage.database import Database
from app.storage.endings import GiveBack
from app.storage.errors import OperationFailed
from app.storage.frames import FrameOperation, NewChunk
from app.storage.generations import lose_generation
from app.storage.jobs import claim_jobs, insert_job, request_stop
from app.storage.operations import Committed, Void
from app.storage.reading import (
    load_attempts,
    load_chunks,
    load_commands,
    load_generation,
    load_job,
    load_reports,
)
from shared.ids import CommandId
from tests.integration.storage.making import (
    GENERATION,
    NOW,
    job_id,
    make_claim,
    make_ending,
    make_job,
    start_generation,
    start_job,
)

COMMITTED = Committed()


def accepted(seq: int, number: int = 1, attempt: int = 1, prompt: int = 7) -> FrameOperation:
    """A frame that accepts the n-th job."""
    frame = FrameOperation(GENERATION, seq)
    frame.accepted(
        job_id(number),
        attempt,
        now=NOW + timedelta(seconds=seq),
        prompt_tokens=prompt,
        cached_tokens=2,
        digest=f"digest {seq}",
        fingerprint="print",
    )
    return frame


def make_chunk(number: int, first: int, last: int, **overrides: int) -> NewChunk:
    """A journal row of the first job."""
    chunk = NewChunk(
        job=job_id(1),
        number=number,
        first_event=first,
        last_event=last,
        attempt=1,
        choice=0,
        first_token=number,
        token_count=1,
        tokens=b"\x01",
        parts=b"text",
    )
    return msgspec.structs.replace(chunk, **overrides)


async def test_accepting_counts_the_prompt_and_answers_the_command(database: Database) -> None:
    await start_generation(database)
    await start_job(database)
    assert await database.writer.submit(accepted(1).build()) == COMMITTED
    row = await load_job(database.readers, job_id(1))
    assert row is not None
    assert (row.started_at, row.events) == (NOW + timedelta(seconds=1), 2)
    assert (row.usage.prompt_tokens, row.usage.cached_tokens) == (7, 2)
    assert (row.prompt_digest, row.fingerprint) == ("digest 1", "print")
    assert await load_commands(database.readers, GENERATION) == []
    generation = await load_generation(database.readers, GENERATION)
    assert generation is not None
    assert (generation.last_seq, generation.jobs, generation.usage.prompt_tokens) == (1, 1, 7)


async def test_a_second_attempt_changes_neither_the_prompts_count_nor_the_start(
    database: Database,
) -> None:
    await start_generation(database)
    await start_job(database)
    first = accepted(1)
    first.gave_back(GiveBack(job=job_id(1), attempt=1, outcome="preempted", now=NOW, due_at=NOW))
    await database.writer.submit(first.build())
    await database.writer.submit(claim_jobs([(make_claim(attempt=2), CommandId(2))]))
    assert await database.writer.submit(accepted(2, attempt=2, prompt=9).build()) == COMMITTED
    row = await load_job(database.readers, job_id(1))
    assert row is not None
    assert (row.usage.prompt_tokens, row.events) == (7, 2)
    assert (row.started_at, row.prompt_digest) == (NOW + timedelta(seconds=1), "digest 1")
    attempts = await load_attempts(database.readers, job_id(1))
    assert [attempt.prompt_tokens for attempt in attempts] == [7, 9]


async def test_tokens_are_counted_per_attempt_choice_and_generation(database: Database) -> None:
    await start_generation(database)
    await start_job(database)
    frame = accepted(1)
    frame.tokens(job_id(1), 1, 1, 2)
    frame.tokens(job_id(1), 1, 0, 1)
    await database.writer.submit(frame.build())
    frame = FrameOperation(GENERATION, 2)
    frame.tokens(job_id(1), 1, 1, 5)
    frame.progressed(job_id(1), 1, 64)
    await database.writer.submit(frame.build())
    (attempt,) = await load_attempts(database.readers, job_id(1))
    assert (attempt.delivered_tokens, attempt.choice_counts) == (8, {0: 1, 1: 7})
    assert attempt.prefill_tokens == 64
    generation = await load_generation(database.readers, GENERATION)
    assert generation is not None
    assert generation.usage.completion_tokens == 8


async def test_a_repeated_frame_changes_nothing(database: Database) -> None:
    await start_generation(database)
    await start_job(database)
    await database.writer.submit(accepted(1).build())
    frame = FrameOperation(GENERATION, 2)
    frame.tokens(job_id(1), 1, 0, 4)
    operation = frame.build()
    assert await database.writer.submit(operation) == COMMITTED
    assert await database.writer.submit(operation) == Void("generation.frame", GENERATION)
    (attempt,) = await load_attempts(database.readers, job_id(1))
    assert attempt.delivered_tokens == 4


async def test_a_frame_after_a_gap_changes_nothing(database: Database) -> None:
    await start_generation(database)
    await start_job(database)
    assert await database.writer.submit(accepted(2).build()) == Void("generation.frame", GENERATION)
    (attempt,) = await load_attempts(database.readers, job_id(1))
    assert attempt.accepted_at is None


async def test_frames_that_join_count_together_and_once(database: Database) -> None:
    await start_generation(database)
    await start_job(database)
    frame = accepted(1)
    frame.join(2)
    frame.join(3)
    operation = frame.build()
    assert await database.writer.submit(operation) == COMMITTED
    generation = await load_generation(database.readers, GENERATION)
    assert generation is not None
    assert generation.last_seq == 3
    assert await database.writer.submit(operation) == Void("attempt.accept", job_id(1))
    assert await database.writer.submit(FrameOperation(GENERATION, 4)) == COMMITTED


async def test_frames_that_join_after_a_gap_change_nothing(database: Database) -> None:
    await start_generation(database)
    frame = FrameOperation(GENERATION, 2)
    frame.join(3)
    assert await database.writer.submit(frame) == Void("generation.frame", GENERATION)


async def test_a_frame_may_grow_while_it_waits_as_the_last(database: Database) -> None:
    await start_generation(database)
    frame = FrameOperation(GENERATION, 1)
    assert not database.writer.may_grow(frame)
    folded = database.writer.submit(frame)
    assert database.writer.may_grow(frame)
    frame.join(2)
    database.writer.grown()
    assert database.writer.depth == 2
    database.writer.submit(insert_job(make_job()))
    assert not database.writer.may_grow(frame), "what came after must not be overtaken"
    assert await folded == COMMITTED
    assert database.writer.depth == 0
    assert not database.writer.may_grow(frame)
    generation = await load_generation(database.readers, GENERATION)
    assert generation is not None
    assert generation.last_seq == 2


async def test_a_lazy_frame_that_grows_by_more_is_in_a_hurry(database: Database) -> None:
    await start_generation(database)
    await start_job(database)
    frame = FrameOperation(GENERATION, 1, lazy=True)
    folded = database.writer.submit(frame)
    frame.lazy = False
    database.writer.grown()
    await asyncio.sleep(0)
    assert not database.writer.may_grow(frame), "it was handed over"
    assert await folded == COMMITTED


async def test_a_frame_of_a_lost_generation_changes_nothing(database: Database) -> None:
    await start_generation(database)
    await database.writer.submit(lose_generation(GENERATION, NOW, "silent"))
    frame = FrameOperation(GENERATION, 1).build()
    assert await database.writer.submit(frame) == Void("generation.frame", GENERATION)


async def test_frames_handed_over_together_keep_their_order(database: Database) -> None:
    await start_generation(database)
    frames = [FrameOperation(GENERATION, seq).build() for seq in range(1, 21)]
    for future in database.writer.submit_many(frames):
        assert await future == COMMITTED


async def test_an_attempt_that_is_not_the_current_one_voids_its_frame(database: Database) -> None:
    await start_generation(database)
    await start_job(database)
    frame = FrameOperation(GENERATION, 1)
    frame.tokens(job_id(1), 2, 0, 1)
    assert await database.writer.submit(frame.build()) == Void("attempt.tokens", job_id(1))


async def test_a_job_ends_in_its_frame_with_report_usage_and_attempt(database: Database) -> None:
    await start_generation(database)
    new = await start_job(database)
    frame = accepted(1)
    frame.tokens(job_id(1), 1, 0, 5)
    frame.ended(new, make_ending(), stop_reason=None, attempt_reasoning=1)
    assert await database.writer.submit(frame.build()) == COMMITTED
    row = await load_job(database.readers, job_id(1))
    assert row is not None
    assert (row.state, row.finish_reason, row.events) == (JobState.COMPLETED, "stop", 3)
    assert row.usage == Usage(
        prompt_tokens=7, cached_tokens=2, completion_tokens=5, reasoning_tokens=1
    )
    (attempt,) = await load_attempts(database.readers, job_id(1))
    assert (attempt.outcome, attempt.reasoning_tokens) == ("finished", 1)
    (report,) = await load_reports(database.readers)
    assert (report.subject, report.outcome) == (job_id(1), "completed")


async def test_the_end_of_an_attempt_answers_its_cancel(database: Database) -> None:
    await start_generation(database)
    new = await start_job(database)
    await database.writer.submit(
        request_stop(
            job_id(1),
            StopReason.CANCEL,
            NOW,
            command=CommandId(2),
            generation=GENERATION,
            attempt=1,
        )
    )
    frame = FrameOperation(GENERATION, 1)
    ending = make_ending(state=JobState.CANCELLED, finish_reason=None)
    frame.ended(new, ending, stop_reason=StopReason.CANCEL)
    assert await database.writer.submit(frame.build()) == COMMITTED
    assert await load_commands(database.readers, GENERATION) == []


async def test_a_stop_committed_in_between_voids_the_frame_whole(database: Database) -> None:
    await start_generation(database)
    first, second = await start_job(database, 1), await start_job(database, 2)
    stop = request_stop(job_id(1), StopReason.CANCEL, NOW)
    frame = FrameOperation(GENERATION, 1)
    frame.ended(second, make_ending(2), stop_reason=None)
    frame.ended(first, make_ending(1), stop_reason=None)
    stopped, folded = database.writer.submit_many([stop, frame.build()])
    assert (await stopped, await folded) == (COMMITTED, Void("job.end", job_id(1)))
    row = await load_job(database.readers, job_id(2))
    assert row is not None
    assert row.state is JobState.RUNNING
    assert await load_reports(database.readers) == []
    again = FrameOperation(GENERATION, 1)
    again.ended(second, make_ending(2), stop_reason=None)
    again.ended(first, make_ending(1), stop_reason=StopReason.CANCEL)
    assert await database.writer.submit(again.build()) == COMMITTED
    assert [report.seq for report in await load_reports(database.readers)] == [1, 2]


async def test_journal_rows_carry_contiguous_event_numbers(database: Database) -> None:
    await start_generation(database)
    await start_job(database)
    frame = accepted(1)
    frame.journal(make_chunk(0, 2, 3))
    frame.journal(make_chunk(1, 4, 3))
    frame.journal(make_chunk(2, 4, 4))
    assert await database.writer.submit(frame.build()) == COMMITTED
    row = await load_job(database.readers, job_id(1))
    assert row is not None
    assert row.events == 5
    assert [chunk.number for chunk in await load_chunks(database.readers, job_id(1))] == [0, 1, 2]
    later = await load_chunks(database.readers, job_id(1), from_event=4)
    assert later == [make_chunk(2, 4, 4)]


async def test_a_journal_row_that_skips_an_event_number_is_void(database: Database) -> None:
    await start_generation(database)
    await start_job(database)
    frame = accepted(1)
    frame.journal(make_chunk(0, 3, 3))
    assert await database.writer.submit(frame.build()) == Void("job.accept+events", job_id(1))


async def test_an_error_in_one_event_names_its_job(database: Database) -> None:
    await start_generation(database)
    await start_job(database, 1)
    await start_job(database, 2)
    frame = FrameOperation(GENERATION, 1)
    frame.tokens(job_id(2), 1, 0, 1)
    frame.journal(make_chunk(0, 1, 1, token_count=-1))
    with pytest.raises(OperationFailed) as failed:
        await database.writer.submit(frame.build())
    assert (failed.value.statement, failed.value.subject) == ("chunk.insert", job_id(1))
    (attempt,) = await load_attempts(database.readers, job_id(2))
    assert attempt.delivered_tokens == 0


async def test_claims_share_a_commit_with_a_frame_of_their_generation(database: Database) -> None:
    await start_generation(database)
    new = await start_job(database, 1)
    await database.writer.submit(accepted(1).build())
    frame = FrameOperation(GENERATION, 2)
    frame.ended(new, make_ending(), stop_reason=None)
    before = database.writer.counts.committed.commits
    insert = insert_job(make_job(2), make_claim(2), CommandId(2))
    for future in database.writer.submit_many([frame.build(), insert]):
        assert await future == COMMITTED
    assert database.writer.counts.committed.commits == before + 1
