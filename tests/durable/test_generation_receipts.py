"""Each worker generation yields one receipt, whoever is killed and when: prepare, then durable, and
only then a signal."""

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.durable.conftest import NewPlace
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
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(180)


def test_a_worker_that_was_prepared_and_never_ended_is_told_of_and_can_be_ended(
    new_place: NewPlace,
) -> None:
    place = serving(new_place)
    assert prepare_stop(place).status_code == 200
    answer = place.server.get("/readyz")
    assert answer.status_code == 503
    assert "was prepared to stop" in answer.json()["reason"]
    job = place.submit("[[tokens=2]]")
    assert place.post(f"/admin/v1/models/{place.model}/reset").status_code == 200
    gone(place, generations(place)[0]["id"])
    assert place.ended(job)["state"] == "completed"
    assert place.server.get("/readyz").status_code == 200


# --- stops that come to their end --------------------------------------------------------------


def test_a_stop_of_the_server_seals_its_worker(new_place: NewPlace) -> None:
    place = serving(new_place)
    place.stop()
    assert_sealed(place)
    assert [row["state"] for row in generations(place)] == ["gone"]
    assert receipt(place)["payload"]["usage"]["completion_tokens"] == SERVED * TOKENS


def test_a_prepared_stop_answers_with_the_receipt_and_leaves_the_process_alone(
    new_place: NewPlace,
) -> None:
    place = serving(new_place)
    answer = prepare_stop(place)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    (row,) = generations(place)
    assert (told["instance_id"], told["model_id"]) == (row["id"], place.model)
    assert (told["completion_tokens_total"], told["requests_total"]) == (SERVED * TOKENS, SERVED)
    assert (told["drain_complete"], told["rank"], told["revision"]) == (True, "sealed", 1)
    assert (row["state"], row["gate"]) == ("stopping", "stopping")
    assert prepare_stop(place, worker=row["id"]).json() == told
    assert len(place.site.workers()) == 1
    job = place.submit("[[tokens=1]]")
    assert place.store.job(job)["attempt"] == 0
    place.site.workers()[0].terminate()
    gone(place)
    assert prepare_stop(place, worker=row["id"]).json() == told
    place.ended(job)
    assert [row["state"] for row in generations(place)] == ["gone", "ready"]
    assert_sealed(place)


def test_two_stops_at_once_are_one_with_one_receipt(new_place: NewPlace) -> None:
    place = serving(new_place)
    with ThreadPoolExecutor(4) as pool:
        answers = [done.result() for done in [pool.submit(prepare_stop, place) for _ in range(4)]]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    place.stop()
    assert_sealed(place)


def test_work_comes_to_rest_before_the_seal_each_in_its_own_way(new_place: NewPlace) -> None:
    """Background jobs go back, a short foreground one finishes, a long one is told."""
    place = serving(new_place)
    durable = place.submit(ENDLESS)
    place.running(durable, 3)
    with ExitStack() as stack:
        short = stack.enter_context(Call(place.server, "[[tokens=60]]"))
        long = stack.enter_context(Call(place.server, ENDLESS))
        for call in (short, long):
            call.read_text(2)
        answer = prepare_stop(place, drain_timeout_s=1.5)
        assert answer.status_code == 200, answer.text
        assert finish_of(list(short.events())) == "stop"
        error = error_of(list(long.events()))
    assert error is not None
    assert error["code"] == "stream_interrupted"
    assert failure_code(place.ended(job_id(long.answer_id))) == "parent_lost"
    assert place.store.job(durable)["state"] == "available"
    assert answer.json()["requests_total"] == SERVED + 3
    assert_sealed(place, SERVED + 3)
    place.site.workers()[0].terminate()
    place.running(durable, 10)
    place.cancel(durable)


def test_a_stop_during_the_load_has_zeros_and_the_load_opens_nothing(new_place: NewPlace) -> None:
    place = new_place({"load_s": 2})
    place.start()
    job = place.submit("[[tokens=1]]")
    wait_until(place.site.workers, 20, "a worker")
    answer = prepare_stop(place)
    assert (answer.status_code, answer.json()["completion_tokens_total"]) == (200, 0)
    assert answer.json()["reason"] == "never_ready"
    wait_until(lambda: "worker_greeted" in place.site.log.read_text(), 20, "the worker's word")
    (row,) = generations(place)
    assert (row["gate"], row["ready_at"]) == ("stopping", None)
    place.site.workers()[0].kill()
    gone(place)
    place.ended(job)
    assert [r["rank"] for r in receipts(place)] == [3]


def test_a_stop_before_there_is_a_process_ends_the_generation_and_the_next_one_serves(
    new_place: NewPlace, tmp_path: Path
) -> None:
    place, now = new_place(), tmp_path / "now"
    place.start(f"put-off app.services.starts:Starts._spawn {now}")
    job = place.submit("[[tokens=1]]")
    wait_until(lambda: generations(place), 20, "a generation")
    assert prepare_stop(place).json()["reason"] == "never_ready"
    now.touch()
    assert gone(place)["pid"] is None
    assert place.ended(job)["state"] == "completed"
    first, second = generations(place)
    assert (first["state"], second["gate"]) == ("gone", "serving")
    assert [r["rank"] for r in receipts(place)] == [3]


# --- workers that die --------------------------------------------------------------------------


def test_a_killed_worker_leaves_a_lower_bound(new_place: NewPlace) -> None:
    place = serving(new_place)
    job = place.submit(ENDLESS)
    place.running(job, 5)
    place.worker().kill()
    row = gone(place)
    found = receipt(place, row["id"])
    said = found["payload"]
    assert (found["rank"], found["outcome"], said["complete"]) == (1, "crashed", False)
    assert (said["reason"], said["jobs"]) == ("worker_lost", SERVED + 1)
    place.cancel(job)
    assert_receipts(place)


def test_a_worker_that_dies_while_no_server_runs_has_its_receipt_before_the_next_listens(
    new_place: NewPlace,
) -> None:
    place = serving(new_place)
    place.kill_parent()
    place.site.workers()[0].kill()
    wait_until(lambda: not place.site.workers())
    assert receipts(place) == []
    place.start()
    found = receipt(place)
    assert (found["rank"], found["payload"]["jobs"]) == (1, SERVED)
    for _ in range(2):
        place.restart()
    assert len(receipts(place)) == 1
    assert_receipts(place)


def test_a_worker_that_dies_before_its_seal_leaves_a_lower_bound(new_place: NewPlace) -> None:
    place = serving(new_place, "worker-dies-before app.services.sealing:Sealing._ask 1")
    told = prepare_stop(place).json()
    assert (told["rank"], told["drain_complete"], told["revision"]) == ("crash", False, 1)
    found = receipt(place)
    assert (found["rank"], found["payload"]["complete"]) == (1, False)
    assert found["payload"]["usage"]["completion_tokens"] == SERVED * TOKENS
    gone(place)
    place.ended(place.submit("[[tokens=1]]"))
    assert len(receipts(place)) == 1


def test_a_worker_that_cannot_be_brought_to_rest_is_kept_and_asked_again(
    new_place: NewPlace,
) -> None:
    place = serving(new_place)
    with Call(place.server, "[[tokens=100]] [[hang_at=5]]") as call:
        call.read_text(2)
        wait_until(lambda: place.server.metric("tokens_total") >= SERVED * TOKENS + 5)
        answer = prepare_stop(place, drain_timeout_s=0.2, abort_timeout_s=0.5)
        assert answer.status_code == 503
        told = answer.json()
        assert told["error"]["code"] == "stop_incomplete"
        assert (told["drain_complete"], told["engine_preserved"]) == (False, True)
        assert receipts(place) == []
        assert [row["gate"] for row in generations(place)] == ["stopping"]
        assert len(place.site.workers()) == 1
        forced = prepare_stop(place, drain_timeout_s=0, abort_timeout_s=0.2, force=True).json()
        assert (forced["drain_complete"], forced["rank"]) == (False, "snapshot")
        assert forced["reason"] == "forced"
        assert "have not come to rest" in forced["detail"]
        place.worker().kill()
        gone(place)
    assert [r["rank"] for r in receipts(place)] == [2]
    assert_receipts(place)


# --- no room for a receipt ---------------------------------------------------------------------


def test_a_receipt_for_which_there_is_no_room_signals_nobody(
    new_place: NewPlace, tmp_path: Path
) -> None:
    marker = tmp_path / "full"
    place = serving(new_place, f"no-room-for-receipts {marker}")
    marker.touch()
    answer = prepare_stop(place, abort_timeout_s=0.5)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stop_incomplete")
    forced = prepare_stop(place, abort_timeout_s=0.2, force=True)
    assert (forced.status_code, forced.json()["engine_preserved"]) == (503, True)
    assert (receipts(place), len(place.site.workers())) == ([], 1)
    assert [row["gate"] for row in generations(place)] == ["stopping"]
    marker.unlink()
    assert prepare_stop(place).json()["rank"] == "sealed"
    place.stop()
    assert_sealed(place)


def test_a_server_that_stops_without_room_for_receipts_leaves_its_worker_to_the_next(
    new_place: NewPlace, tmp_path: Path
) -> None:
    marker = tmp_path / "full"
    place = new_place({}, {"worker.stop_grace_s": 0.3})
    unrecorded = "set app.services.workers:UNRECORDED_S 0.3"
    place.start(f"no-room-for-receipts {marker}", unrecorded)
    place.warm()
    marker.touch()
    place.server.tell(signal.SIGTERM)
    place.parent_died()
    assert (receipts(place), len(place.site.workers())) == ([], 1)
    place.start()
    gone(place)
    assert_sealed(place, 1)


# --- servers that die, between any two steps ---------------------------------------------------


def test_a_server_killed_when_the_gate_is_closed_goes_on_with_the_stop(new_place: NewPlace) -> None:
    place = serving(new_place, "die-after app.services.sealing:Sealing._closed 1")
    worker = place.worker()
    with pytest.raises(httpx.HTTPError):
        prepare_stop(place)
    place.parent_died()
    (row,) = generations(place)
    assert (row["state"], receipts(place)) == ("stopping", [])
    assert worker.is_running()
    place.start()
    job = place.submit("[[tokens=1]]")
    gone(place, row["id"])
    place.ended(job)
    assert row["id"] not in [attempt["generation"] for attempt in place.attempts(job)]
    (found,) = [r for r in receipts(place) if r["subject"] == row["id"]]
    assert (found["rank"], found["payload"]["jobs"]) == (3, SERVED)
    assert_receipts(place)


def test_a_server_killed_when_requests_are_told_to_stop_ends_each_once(new_place: NewPlace) -> None:
    place = serving(new_place, "die-after app.services.cancellation:Cancellation._requested 1")
    with ExitStack() as stack:
        calls = [stack.enter_context(Call(place.server, ENDLESS)) for _ in range(3)]
        for call in calls:
            call.read_text(2)
        with pytest.raises(httpx.HTTPError):
            prepare_stop(place, drain_timeout_s=0)
        restarted(place)
    gone(place)
    for call in calls:
        row = place.ended(job_id(call.answer_id))
        assert (row["state"], failure_code(row)) == ("failed", "parent_lost")
        assert len(place.store.reports(row["id"])) == 1
    assert_sealed(place, SERVED + 3)


@pytest.mark.parametrize("moment", ["die-before", "die-after"])
def test_a_server_killed_around_the_seals_own_commit_asks_again(
    new_place: NewPlace, moment: str
) -> None:
    place = serving(new_place, f"{moment} app.services.sealing:Sealing._asked 1")
    with pytest.raises(httpx.HTTPError):
        prepare_stop(place)
    restarted(place)
    gone(place)
    assert_sealed(place)


@pytest.mark.parametrize(
    "moment",
    [
        "die-before app.services.sealing:Sealing.sealed 1",
        "die-before app.services.workers:Workers._tell_to_exit 1",
        "die-after app.services.workers:Workers._tell_to_exit 1",
    ],
    ids=["sealed", "before-the-word", "after-the-word"],
)
def test_a_server_killed_between_receipt_and_signal_tells_no_second_one(
    new_place: NewPlace, moment: str
) -> None:
    place = serving(new_place, moment)
    worker = place.worker()
    place.server.tell(signal.SIGTERM)
    place.parent_died()
    before = receipt(place)
    assert before["rank"] == 3
    assert worker.is_running() or moment.startswith("die-after")
    place.start()
    gone(place)
    place.ended(place.submit("[[tokens=1]]"))
    assert [r["seq"] for r in receipts(place)] == [before["seq"]]
    assert_sealed(place)


def test_a_server_killed_when_a_loss_is_decided_or_committed_tells_it_once(
    new_place: NewPlace,
) -> None:
    place = serving(new_place, "die-before app.services.rescue:Rescue._lost 1")
    job = place.submit(ENDLESS)
    place.running(job, 5)
    place.worker().kill()
    restarted(place)
    gone(place)
    place.cancel(job)
    place.stop()
    assert_receipts(place)
    assert [r["rank"] for r in receipts(place)] == [1, 3]


# --- booking -----------------------------------------------------------------------------------


def test_what_is_booked_between_receipt_and_signal_is_not_told_again(new_place: NewPlace) -> None:
    place = serving(new_place)
    told = prepare_stop(place).json()
    (listed,) = pending(place)
    assert (listed["receiptId"], listed["revision"]) == (told["receipt_id"], 1)
    assert (listed["degraded"], listed["drainComplete"], listed["bestEffort"]) == (
        False,
        True,
        False,
    )
    booked = {"receipts": [{"id": told["receipt_id"], "revision": 1}]}
    assert place.post("/accounting/ack", booked).json()["receipts"][0]["state"] == "acked"
    assert place.post("/accounting/ack", booked).json()["receipts"][0]["state"] == "already"
    assert pending(place) == []
    assert prepare_stop(place).json() == told
    place.restart()
    gone(place)
    assert pending(place) == []


def test_a_receipt_that_was_booked_is_pending_again_when_more_is_known(new_place: NewPlace) -> None:
    place = serving(new_place)
    with Call(place.server, "[[tokens=400]]") as call:
        call.read_text(5)
        fields = {"drain_timeout_s": 0, "abort_timeout_s": 0, "force": True}
        first = prepare_stop(place, **fields).json()
        assert first["rank"] == "snapshot"
        booked = {"receiptId": first["receipt_id"], "revision": 1}
        assert place.post("/accounting/ack", booked).json()["acked"] is True
        assert pending(place) == []
        list(call.events())
    second = prepare_stop(place).json()
    assert (second["receipt_id"], second["revision"]) == (first["receipt_id"], 2)
    assert (second["rank"], second["drain_complete"]) == ("sealed", True)
    assert second["completion_tokens_total"] >= first["completion_tokens_total"]
    assert [r["revision"] for r in pending(place)] == [2]
    old = place.post("/accounting/ack", booked).json()
    assert (old["acked"], old["already"]) == (True, True)
    assert [r["revision"] for r in pending(place)] == [2]
    assert place.post("/accounting/ack", {**booked, "revision": 2}).json()["acked"] is True
    assert pending(place) == []
    assert [(r["revision"], r["tombstone"]) for r in receipts(place)] == [(1, 1), (2, 0)]


def test_booking_does_not_wait_for_a_stop(new_place: NewPlace) -> None:
    place = serving(new_place)
    with Call(place.server, "[[tokens=100]] [[hang_at=5]]") as call, ThreadPoolExecutor(1) as pool:
        call.read_text(2)
        stopping = pool.submit(prepare_stop, place, drain_timeout_s=1.0, abort_timeout_s=1.0)
        wait_until(lambda: generations(place)[0]["gate"] == "stopping")
        for _ in range(5):
            assert pending(place) == []
            unknown = place.post("/accounting/ack", {"receiptId": "none"}).json()
            assert unknown["acked"] is False
        assert not stopping.done()
        assert stopping.result().status_code == 503
        place.worker().kill()
