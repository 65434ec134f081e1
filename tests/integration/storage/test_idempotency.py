from datetime import timedelta
from typing import Any

import msgspec

from app.storage.database import Database
from app.storage.idempotency import NewIdempotency, load_idempotency
from app.storage.jobs import insert_job
from app.storage.operations import Committed, Operation, Void
from app.storage.reading import load_job
from shared.ids import CommandId
from tests.integration.storage.making import (
    NOW,
    job_id,
    make_claim,
    make_job,
    start_generation,
)

COMMITTED = Committed()
DAY = timedelta(days=1)


def make_key(number: int = 1, **overrides: Any) -> NewIdempotency:
    """A key that names the n-th job."""
    key = NewIdempotency(
        tenant="default",
        method="POST",
        path="/v1/jobs",
        key="order 66",
        digest="digest",
        job=job_id(number),
        created_at=NOW,
        expires_at=NOW + DAY,
    )
    return msgspec.structs.replace(key, **overrides)


def insert_with(number: int, **overrides: Any) -> Operation:
    """The n-th job with its key."""
    return insert_job(make_job(number), idempotency=make_key(number, **overrides))


async def find(database: Database, **overrides: Any) -> tuple[str, str] | None:
    scope: dict[str, Any] = {
        "tenant": "default",
        "method": "POST",
        "path": "/v1/jobs",
        "key": "order 66",
        "now": NOW + timedelta(hours=1),
    }
    return await load_idempotency(database.readers, **(scope | overrides))


async def test_a_key_finds_the_job_that_came_with_it(database: Database) -> None:
    assert await find(database) is None
    assert await database.writer.submit(insert_with(1)) == COMMITTED
    assert await find(database) == (job_id(1), "digest")


async def test_a_key_belongs_to_its_tenant_method_and_path(database: Database) -> None:
    await database.writer.submit(insert_with(1))
    assert await find(database, tenant="other") is None
    assert await find(database, method="PUT") is None
    assert await find(database, path="/v1/responses") is None
    assert await find(database, key="order 67") is None
    assert await database.writer.submit(insert_with(2, tenant="other")) == COMMITTED


async def test_a_second_job_with_the_same_key_is_not_inserted(database: Database) -> None:
    await database.writer.submit(insert_with(1))
    void = Void("idempotency.insert", job_id(2))
    assert await database.writer.submit(insert_with(2, digest="another")) == void
    assert await load_job(database.readers, job_id(2)) is None
    assert await find(database) == (job_id(1), "digest")


async def test_of_two_submitted_together_the_first_wins_and_their_neighbour_is_not_touched(
    database: Database,
) -> None:
    first, second, other = database.writer.submit_many(
        [insert_with(1), insert_with(2), insert_job(make_job(3))]
    )
    assert (await first, await second, await other) == (
        COMMITTED,
        Void("idempotency.insert", job_id(2)),
        COMMITTED,
    )


async def test_a_repeated_key_claims_no_row_of_a_worker(database: Database) -> None:
    await start_generation(database)
    await database.writer.submit(insert_with(1))
    again = insert_job(make_job(2), make_claim(2), CommandId(2), idempotency=make_key(2))
    assert await database.writer.submit(again) == Void("idempotency.insert", job_id(2))


async def test_a_key_whose_time_is_over_is_free_again(database: Database) -> None:
    await database.writer.submit(insert_with(1))
    later = NOW + DAY
    assert await find(database, now=later) is None
    again = insert_with(2, created_at=later, expires_at=later + DAY, digest="another")
    assert await database.writer.submit(again) == COMMITTED
    assert await find(database, now=later) == (job_id(2), "another")
