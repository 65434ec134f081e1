from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.domain.view import DrainView
from app.storage.database import Database
from app.storage.drains import (
    DrainReport,
    drain_progress,
    drain_report,
    end_drain,
    insert_drain,
    interrupt_drains,
    load_latest_drain,
    load_running_drains,
)
from app.storage.errors import OperationFailed
from app.storage.operations import Committed, Void
from app.storage.reading import highest_id, load_reports
from shared.ids import report_id
from tests.integration.storage.making import NOW, opened

COMMITTED = Committed()
LATER = NOW + timedelta(seconds=30)


def make_drain(number: int = 1, **overrides: Any) -> DrainView:
    """The n-th drain, of eight that were in flight."""
    drain = DrainView(
        id=f"drain_{number:032x}",
        mode="checkpoint",
        scope="server",
        state="running",
        started_at=NOW,
        ended_at=None,
        timeout_s=2.5,
        in_flight=8,
        finished=0,
        given_back=0,
        cancelled=0,
    )
    return msgspec.structs.replace(drain, **overrides)


DONE = make_drain(state="completed", ended_at=LATER, finished=3, given_back=4, cancelled=1)


async def test_a_drain_comes_back_as_it_was_begun(database: Database) -> None:
    assert await load_latest_drain(database.readers) is None
    assert await database.writer.submit(insert_drain(make_drain())) == COMMITTED
    assert await load_latest_drain(database.readers) == make_drain()
    assert await load_running_drains(database.readers) == [make_drain()]


async def test_progress_is_what_became_of_so_many(database: Database) -> None:
    await database.writer.submit(insert_drain(make_drain()))
    further = make_drain(finished=1, given_back=2, cancelled=3)
    assert await database.writer.submit(drain_progress(further)) == COMMITTED
    assert await load_latest_drain(database.readers) == further


async def test_more_than_was_in_flight_cannot_have_ended(database: Database) -> None:
    await database.writer.submit(insert_drain(make_drain()))
    with pytest.raises(OperationFailed, match="counts_range"):
        await database.writer.submit(drain_progress(make_drain(finished=5, given_back=4)))


async def test_a_drain_ends_with_its_one_report(database: Database) -> None:
    await database.writer.submit(insert_drain(make_drain()))
    assert await database.writer.submit(end_drain(DONE)) == COMMITTED
    assert await load_latest_drain(database.readers) == DONE
    assert await load_running_drains(database.readers) == []
    (report,) = await load_reports(database.readers)
    assert (report.id, report.kind) == (report_id("drain", DONE.id), "drain")
    assert (report.outcome, report.reason, report.complete) == ("completed", None, True)
    payload = msgspec.json.decode(report.payload, type=DrainReport)
    assert (payload.in_flight, payload.finished, payload.given_back, payload.cancelled) == (
        8,
        3,
        4,
        1,
    )


async def test_a_drain_ends_once(database: Database) -> None:
    await database.writer.submit(insert_drain(make_drain()))
    await database.writer.submit(end_drain(DONE))
    again = end_drain(msgspec.structs.replace(DONE, state="cancelled"))
    assert await database.writer.submit(again) == Void("drain.end", DONE.id)
    assert await database.writer.submit(drain_progress(DONE)) == Void("drain.progress", DONE.id)
    assert len(await load_reports(database.readers)) == 1


async def test_a_drain_whose_proof_does_not_add_up_cannot_be_completed(
    database: Database,
) -> None:
    await database.writer.submit(insert_drain(make_drain()))
    short = msgspec.structs.replace(DONE, finished=2)
    with pytest.raises(OperationFailed, match="completed_adds_up"):
        await database.writer.submit(end_drain(short))
    failed = msgspec.structs.replace(short, state="failed", reason="timeout")
    assert await database.writer.submit(end_drain(failed)) == COMMITTED
    assert await load_reports(database.readers)


async def test_the_next_parent_ends_what_the_last_one_was_draining(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        await database.writer.submit(insert_drain(make_drain(1)))
        await database.writer.submit(end_drain(DONE))
        await database.writer.submit(insert_drain(make_drain(2)))
        await database.writer.submit(drain_progress(make_drain(2, finished=1)))
    async with opened(data_dir) as database:
        running = await load_running_drains(database.readers)
        assert await database.writer.submit(interrupt_drains(running, LATER)) == COMMITTED
        latest = await load_latest_drain(database.readers)
        assert latest == make_drain(
            2, state="failed", reason="interrupted", ended_at=LATER, finished=1
        )
        reports = await load_reports(database.readers)
        assert [(r.outcome, r.reason, r.complete) for r in reports] == [
            ("completed", None, True),
            ("failed", "interrupted", False),
        ]


async def test_nothing_to_interrupt_is_nothing_written(database: Database) -> None:
    assert await database.writer.submit(interrupt_drains([], LATER)) == COMMITTED


def test_a_drain_that_runs_has_no_report() -> None:
    with pytest.raises(ValueError, match="has not ended"):
        drain_report(make_drain(), complete=True)


async def test_ids_are_minted_above_those_of_drains_too(database: Database) -> None:
    await database.writer.submit(insert_drain(make_drain(77)))
    assert await highest_id(database.readers) == f"{77:032x}"
