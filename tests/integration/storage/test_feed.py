import asyncio

from app.domain.job import JobState
from app.storage.database import Database
from app.storage.jobs import end_waiting_job, insert_job
from app.storage.operations import Committed, Operation, Void
from app.storage.reading import load_reports
from tests.integration.storage.making import job_id, make_ending, make_job


def end(number: int) -> Operation:
    """The n-th job is cancelled while it waits."""
    ending = make_ending(number, attempt=0, state=JobState.CANCELLED, finish_reason=None)
    return end_waiting_job(make_job(number), ending, JobState.AVAILABLE)


async def test_reports_of_one_commit_take_the_next_places_in_order(database: Database) -> None:
    await asyncio.gather(
        *database.writer.submit_many([insert_job(make_job(n)) for n in range(1, 11)])
    )
    await asyncio.gather(*database.writer.submit_many([end(n) for n in range(1, 11)]))
    reports = await load_reports(database.readers)
    assert [(r.seq, r.subject) for r in reports] == [(n, job_id(n)) for n in range(1, 11)]


async def test_an_undone_operation_leaves_no_gap_in_the_feed(database: Database) -> None:
    jobs = [insert_job(make_job(n)) for n in (1, 2, 4)]
    await asyncio.gather(*database.writer.submit_many(jobs))
    ends = database.writer.submit_many([end(n) for n in (1, 2, 3, 4)])
    results = await asyncio.gather(*ends)
    assert results == [Committed(), Committed(), Void("job.end_waiting", job_id(3)), Committed()]
    await database.writer.submit(insert_job(make_job(5)))
    await database.writer.submit(end(5))
    reports = await load_reports(database.readers)
    assert [(r.seq, r.subject) for r in reports] == [
        (1, job_id(1)),
        (2, job_id(2)),
        (3, job_id(4)),
        (4, job_id(5)),
    ]


async def test_places_are_not_used_again_after_pruning(database: Database) -> None:
    for number in (1, 2):
        await database.writer.submit(insert_job(make_job(number)))
        await database.writer.submit(end(number))
    from app.storage.operations import Rank, Statement, Step

    prune = Statement("prune", Rank.META, "DELETE FROM report", exact=False)
    await database.writer.submit(Operation(name="prune", subjects=(), steps=(Step(prune, {}),)))
    await database.writer.submit(insert_job(make_job(3)))
    await database.writer.submit(end(3))
    assert [report.seq for report in await load_reports(database.readers)] == [3]


async def test_the_feed_is_read_a_page_at_a_time(database: Database) -> None:
    for number in range(1, 6):
        await database.writer.submit(insert_job(make_job(number)))
        await database.writer.submit(end(number))
    page = await load_reports(database.readers, after=2, limit=2)
    assert [report.seq for report in page] == [3, 4]
