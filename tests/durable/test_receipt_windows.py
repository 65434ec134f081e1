"""Moments at which a receipt could be lost, told twice or waited for in vain, one test each."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import psutil
import pytest

from tests.durable.conftest import NewPlace
from tests.durable.place import SLACK_S, Place
from tests.durable.receipts import (
    ENDLESS,
    SERVED,
    TOKENS,
    assert_receipts,
    assert_sealed,
    generations,
    gone,
    pending,
    prepare_stop,
    receipt,
    receipts,
    restarted,
    serving,
)
from tests.e2e.calls import Call, error_of, finish_of
from tests.e2e.store import failure_code, job_id
from tests.integration.storage.making import names_in
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)

SEAL_IN_HAND = [
    "die-before app.services.sealing:Sealing.answered 1",
    "die-after app.storage.committing:settle 1",
]
HANGS = "[[tokens=100]] [[hang_at=5]]"


def given_to(place: Place, job: str) -> list[str]:
    """The generations that this job was given to."""
    return [attempt["generation"] for attempt in place.attempts(job)]


def die_now(place: Place, process: psutil.Process) -> None:
    """This worker, by kill -9, to the end. There may be another by then."""
    process.kill()
    wait_until(lambda: process not in place.site.workers(), SLACK_S, "the worker's death")


# --- between the worker's word and the receipt -------------------------------------------------


@pytest.mark.parametrize("moment", SEAL_IN_HAND, ids=["told", "in-the-commit"])
def test_a_server_killed_with_the_workers_count_in_hand_asks_for_it_again(
    new_place: NewPlace, moment: str
) -> None:
    """The worker has closed its book, and nothing is written yet. It is never taken for one that
    serves, and no half of a receipt lies about."""
    place = serving(new_place, moment)
    files = names_in(place.site.data_dir)
    with pytest.raises(httpx.HTTPError):
        prepare_stop(place)
    place.parent_died()
    (row,) = generations(place)
    assert (row["state"], receipts(place)) == ("stopping", [])
    place.start()
    job = place.submit("[[tokens=1]]")
    gone(place, row["id"])
    place.ended(job)
    assert row["id"] not in given_to(place, job)
    (found,) = [r for r in receipts(place) if r["subject"] == row["id"]]
    assert (found["rank"], found["revision"]) == (3, 1)
    assert found["payload"]["usage"]["completion_tokens"] == SERVED * TOKENS
    assert names_in(place.site.data_dir) == files
    assert_receipts(place)


def test_a_sealed_worker_that_dies_while_no_server_runs_is_not_told_of_twice(
    new_place: NewPlace,
) -> None:
    place = serving(new_place)
    told = prepare_stop(place).json()
    before = receipt(place)
    worker = place.site.workers()[0]
    place.kill_parent()
    die_now(place, worker)
    for _ in range(2):
        place.restart()
        gone(place)
        assert receipts(place) == [before]
    assert [(r["receiptId"], r["revision"]) for r in pending(place)] == [(told["receipt_id"], 1)]
    assert_sealed(place)


def test_no_server_listens_before_the_receipts_of_the_dead_are_written(
    new_place: NewPlace, tmp_path: Path
) -> None:
    """The next one would die as it says that it listens; it cannot while the disk is full."""
    marker = tmp_path / "full"
    place = serving(new_place)
    worker = place.site.workers()[0]
    place.kill_parent()
    die_now(place, worker)
    marker.touch()
    orders = (f"no-room-for-receipts {marker}", "die-before app.main:_announce 1")
    with ThreadPoolExecutor(1) as pool:
        dying = pool.submit(place.start_and_die, *orders)
        wait_until(lambda: "disk_full" in place.site.log.read_text(), SLACK_S, "a full disk")
        assert receipts(place) == []
        marker.unlink()
        dying.result(SLACK_S)
    assert [r["rank"] for r in receipts(place)] == [1]


# --- what a receipt counts ---------------------------------------------------------------------


def test_what_was_shown_is_in_the_receipt_though_server_and_worker_died(
    new_place: NewPlace,
) -> None:
    """Nobody has asked for any figures meanwhile: they are those of the store."""
    place = serving(new_place)
    job = place.submit(ENDLESS)
    place.running(job, 20)
    worker = place.site.workers()[0]
    place.kill_parent()
    die_now(place, worker)
    shown = len(place.tokens(job))
    place.start()
    found = receipt(place, generations(place)[0]["id"])
    assert (found["rank"], found["payload"]["complete"]) == (1, False)
    assert found["payload"]["jobs"] == SERVED + 1
    assert found["payload"]["usage"]["completion_tokens"] == SERVED * TOKENS + shown
    place.cancel(job)
    assert_receipts(place)


@pytest.mark.parametrize("who", ["worker", "both"])
def test_what_is_served_after_a_forced_receipt_was_booked_is_told_as_its_next_revision(
    new_place: NewPlace, who: str
) -> None:
    """The totals are all of it again, to be set and not added."""
    place = serving(new_place)
    with Call(place.server, ENDLESS) as call:
        call.read_text(5)
        first = prepare_stop(place, drain_timeout_s=0, abort_timeout_s=0, force=True).json()
        assert (first["rank"], first["revision"]) == ("snapshot", 1)
        booked = {"receiptId": first["receipt_id"], "revision": 1}
        assert place.post("/accounting/ack", booked).json()["acked"] is True
        assert pending(place) == []
        delivered = "SELECT coalesce(sum(delivered_tokens), 0) AS count FROM attempt"
        told = first["completion_tokens_total"]
        wait_until(lambda: place.store.rows(delivered)[0]["count"] > told + 10, SLACK_S)
        worker = place.site.workers()[0]
        if who == "both":
            place.kill_parent()
        die_now(place, worker)
        if who == "both":
            place.start()
    gone(place)
    (second,) = pending(place)
    assert (second["receiptId"], second["revision"]) == (first["receipt_id"], 2)
    assert second["instanceId"] == first["instance_id"]
    assert second["degraded"] is True
    assert second["completionTokensTotal"] > told + 10
    assert [(r["revision"], r["tombstone"]) for r in receipts(place)] == [(1, 1), (2, 0)]
    assert place.post("/accounting/ack", {**booked, "revision": 2}).json()["acked"] is True
    assert pending(place) == []
    assert_receipts(place)


# --- whoever waits -----------------------------------------------------------------------------


def test_whoever_is_cut_by_a_stop_is_told_and_whoever_waits_is_served_later(
    new_place: NewPlace,
) -> None:
    place = new_place({"step_s": 0.005}, {"worker.rows": 2, "worker.prefetch": 0})
    place.start()
    place.warm()
    with ExitStack() as stack:
        stream = stack.enter_context(Call(place.server, ENDLESS))
        stream.read_text(2)
        plain = stack.enter_context(Call(place.server, ENDLESS, stream=False))
        claimed = "SELECT 1 FROM attempt WHERE outcome IS NULL AND accepted_at IS NOT NULL"
        wait_until(lambda: len(place.store.rows(claimed)) == 2, SLACK_S, "two rows at work")
        waiting = stack.enter_context(Call(place.server, "[[tokens=5]]"))
        wait_until(lambda: place.store.count() == 4, SLACK_S, "the third request")
        assert prepare_stop(place, drain_timeout_s=0).status_code == 200
        error = error_of(list(stream.events()))
        assert error is not None
        assert error["code"] == "stream_interrupted"
        assert (plain.status, plain.body()["error"]["code"]) == (503, "stream_interrupted")
        place.site.workers()[0].terminate()
        assert finish_of(list(waiting.events())) == "stop"
    assert_receipts(place)


def test_a_worker_that_dies_while_it_comes_to_rest_holds_up_neither_stop_nor_client(
    new_place: NewPlace,
) -> None:
    place = serving(new_place)
    with Call(place.server, "[[tokens=400]]") as call, ThreadPoolExecutor(1) as pool:
        call.read_text(5)
        stopping = pool.submit(prepare_stop, place, drain_timeout_s=60, abort_timeout_s=60)
        wait_until(lambda: generations(place)[0]["gate"] == "stopping")
        place.site.workers()[0].kill()
        told = stopping.result(SLACK_S)
        assert told.status_code == 200, told.text
        assert (told.json()["rank"], told.json()["drain_complete"]) == ("crash", False)
        assert finish_of(list(call.events())) == "stop"
    place.stop()
    assert [r["rank"] for r in receipts(place)] == [1, 3]
    assert_receipts(place)


def test_a_worker_that_hangs_is_given_up_and_its_stop_comes_to_an_end(new_place: NewPlace) -> None:
    place = serving(new_place, "set app.services.cancellation:REPLACE_S 0.5")
    with Call(place.server, HANGS) as call:
        call.read_text(2)
        at = SERVED * TOKENS + 5
        wait_until(lambda: place.server.metric("tokens_total") >= at, SLACK_S, "the hang")
        told = prepare_stop(place, drain_timeout_s=0, abort_timeout_s=60)
        assert told.status_code == 200, told.text
        assert (told.json()["rank"], told.json()["drain_complete"]) == ("crash", False)
        assert "a cancel was not answered" in told.json()["detail"]
        assert list(call.events())[-1].get("error")
    gone(place)
    (row,) = [row for row in place.store.jobs() if row["id"] == job_id(call.answer_id)]
    assert (row["state"], failure_code(row)) == ("failed", "parent_lost")
    assert len(receipts(place)) == 1
    assert_receipts(place)


def test_the_stop_of_a_worker_that_was_given_up_already_is_answered(
    new_place: NewPlace, tmp_path: Path
) -> None:
    """Its loss cannot be written, so nobody ends it: that is said, and once it can, the receipt."""
    marker = tmp_path / "full"
    place = new_place(
        {}, {"worker.heartbeat_interval_s": 0.1, "worker.heartbeat_timeout_s": 1, "worker.rows": 1}
    )
    place.start(f"no-room-for-receipts {marker}")
    place.warm()
    worker = place.worker()
    marker.touch()
    worker.suspend()
    wait_until(lambda: "worker_lost" in place.site.log.read_text(), SLACK_S, "its loss")
    refused = prepare_stop(place, abort_timeout_s=0.2)
    assert refused.status_code == 503, refused.text
    told = refused.json()
    assert (told["error"]["code"], told["engine_preserved"]) == ("stop_incomplete", True)
    assert worker.is_running()
    known = generations(place)[0]["id"]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(prepare_stop, place, worker=known, abort_timeout_s=60)
        marker.unlink()
        assert asked.result(SLACK_S).json()["rank"] == "crash"
    gone(place)
    assert len(receipts(place)) == 1


# --- what waits for nothing --------------------------------------------------------------------


def test_while_a_stop_waits_for_the_disk_everything_else_is_answered(new_place: NewPlace) -> None:
    """Somebody holds the file, so that nothing can be written: the loop and the readers go on."""
    place = serving(new_place)
    with (
        ThreadPoolExecutor(1) as pool,
        closing(sqlite3.connect(place.store.path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        stopping = pool.submit(prepare_stop, place, abort_timeout_s=60)
        for _ in range(20):
            assert place.server.client.get(f"{place.server.base}/livez", timeout=5).is_success
            assert pending(place) == []
        assert not stopping.done()
        other.execute("ROLLBACK")
        assert stopping.result(SLACK_S).json()["rank"] == "sealed"


def test_workers_that_die_again_and_again_leave_no_more_receipts_than_the_budget_has_starts(
    new_place: NewPlace,
) -> None:
    budget = {"worker.restart_limit": 3, "worker.restart_window_s": 600}
    place = new_place({"load_error": "The weights are damaged."}, budget)
    place.start()
    job = place.submit("[[tokens=1]]")
    wait_until(lambda: place.server.metric("restart_exhausted") == 1, SLACK_S, "the budget's end")
    wait_until(lambda: {r["state"] for r in generations(place)} == {"gone"}, SLACK_S)
    assert len(generations(place)) == 3
    assert [r["rank"] for r in receipts(place)] == [1, 1, 1]
    assert len({r["id"] for r in receipts(place)}) == 3
    place.cancel(job)


# --- servers that die --------------------------------------------------------------------------


def test_two_stops_at_once_whose_server_is_killed_are_one_with_one_receipt(
    new_place: NewPlace,
) -> None:
    place = serving(new_place, "die-before app.services.sealing:Sealing.sealed 1")
    with ThreadPoolExecutor(2) as pool:
        for stop in [pool.submit(prepare_stop, place) for _ in range(2)]:
            with pytest.raises(httpx.HTTPError):
                stop.result()
    (known,) = [row["id"] for row in generations(place)]
    before = receipt(place)
    restarted(place)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(prepare_stop, place, worker=known) for _ in range(2)]
        told = [stop.result().json() for stop in asked]
    assert told[0] == told[1]
    assert (told[0]["receipt_id"], told[0]["revision"]) == (before["id"], 1)
    gone(place)
    assert receipts(place) == [before]
    assert_sealed(place)


def test_a_server_killed_while_there_is_no_room_for_a_receipt_goes_on_with_the_stop(
    new_place: NewPlace, tmp_path: Path
) -> None:
    marker = tmp_path / "full"
    place = serving(new_place, f"no-room-for-receipts {marker}")
    marker.touch()
    assert prepare_stop(place, abort_timeout_s=0.5).status_code == 503
    place.kill_parent()
    assert (receipts(place), len(place.site.workers())) == ([], 1)
    place.start()
    gone(place)
    assert_sealed(place)


def test_a_server_killed_when_it_stops_a_worker_that_loads_leaves_zeros(
    new_place: NewPlace,
) -> None:
    place = new_place({"load_s": 2})
    place.start("die-after app.services.sealing:Sealing._closed 1")
    job = place.submit("[[tokens=1]]")
    wait_until(lambda: generations(place), SLACK_S, "a worker")
    with pytest.raises(httpx.HTTPError):
        prepare_stop(place)
    restarted(place)
    row = gone(place)
    place.ended(job)
    assert (row["gate"], row["ready_at"]) == ("stopping", None)
    assert row["id"] not in given_to(place, job)
    (found,) = [r for r in receipts(place) if r["subject"] == row["id"]]
    said = found["payload"]
    assert (found["rank"], said["reason"], said["complete"]) == (3, "never_ready", True)
    assert (said["jobs"], said["usage"]["completion_tokens"]) == (0, 0)
