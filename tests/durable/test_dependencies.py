"""Jobs that wait for other jobs, also over the death of the server that knew of it."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from app.cli.main import cli
from tests.durable.place import Place
from tests.durable.webs import run_web

NewPlace = Callable[..., Place]
SOON = "[[tokens=2]]"
LONG = "[[tokens=40]]"
DEPENDENTS = "app.services.dependents:Dependents"


def failure_of(place: Place, job: str) -> Any:
    return place.job(job)["failure"]


def reports(place: Place, *jobs: str) -> list[int]:
    return [len(place.store.reports(job)) for job in jobs]


def test_a_job_runs_when_those_that_it_waits_for_have_completed(place: Place) -> None:
    first, second = place.submit(LONG), place.submit(LONG)
    third = place.submit(SOON, after=[first, second])
    waiting = place.job(third)
    assert waiting["state"] == "scheduled"
    assert [before["job"] for before in waiting["after"]] == sorted([first, second])
    assert waiting["on_failure"] == "fail"
    row = place.ended(third)
    assert row["state"] == "completed"
    for before in (first, second):
        assert place.store.job(before)["finalized_at"] <= row["available_at"]
    told = place.job(third)["after"]
    assert [before["outcome"] for before in told] == ["completed", "completed"]


def test_a_job_whose_predecessor_has_ended_runs_at_once(place: Place) -> None:
    first = place.submit(SOON)
    place.ended(first)
    second = place.submit(SOON, after=[first])
    assert place.ended(second)["state"] == "completed"


def test_a_chain_fails_with_its_first_link_and_each_has_one_report(place: Place) -> None:
    first = place.submit(LONG)
    second = place.submit(SOON, after=[first])
    third = place.submit(SOON, after=[second])
    cure = place.submit(SOON, after=[second], on_failure="run")
    place.running(first)
    place.cancel(first)
    assert place.ended(third)["state"] == "failed"
    assert place.ended(cure)["state"] == "completed"
    assert failure_of(place, second)["code"] == "dependency_failed"
    assert f"{first}, which ended cancelled" in failure_of(place, second)["message"]
    assert f"{second}, which ended failed" in failure_of(place, third)["message"]
    assert reports(place, first, second, third, cure) == [1, 1, 1, 1]
    late = place.submit(SOON, after=[second])
    assert place.ended(late)["state"] == "failed"


def test_a_waiting_job_is_cancelled_at_once_and_leaves_its_predecessor_alone(place: Place) -> None:
    first = place.submit(LONG)
    second = place.submit(SOON, after=[first])
    assert place.cancel(second)["state"] == "cancelled"
    assert place.ended(first)["state"] == "completed"


def test_a_retried_job_waits_for_nobody_and_nobody_for_it(place: Place) -> None:
    first = place.submit(LONG)
    second = place.submit(SOON, after=[first])
    place.cancel(first)
    place.ended(second)
    again = place.post(f"/v1/jobs/{second}/retry").json()["id"]
    assert place.ended(again)["state"] == "completed"
    assert place.job(again)["after"] == []
    assert place.job(second)["state"] == "failed"


def test_a_waiting_job_keeps_its_deadline(place: Place) -> None:
    first = place.submit("[[tokens=200]]")
    second = place.submit(SOON, after=[first], deadline_s=0.2)
    assert place.ended(second)["state"] == "failed"
    assert failure_of(place, second)["code"] == "deadline_exceeded"
    place.cancel(first)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"after": ["job_" + "0" * 32]}, "after[0]"),
        ({"after": ["nonsense"]}, "after[0]"),
        ({"after": ["job_" + f"{n:032x}" for n in range(65)]}, "after"),
        ({"after": [], "on_failure": "wait"}, "on_failure"),
    ],
)
def test_what_cannot_be_waited_for_is_refused(
    place: Place, fields: dict[str, Any], param: str
) -> None:
    answer = place.post("/v1/jobs", place.body(SOON, **fields))
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    answer = place.post("/v1/jobs/bulk", {"jobs": [place.body(SOON), place.body(SOON, **fields)]})
    assert answer.json()["error"]["param"] == f"jobs[1].{param}"


def test_jobs_of_another_tenant_cannot_be_waited_for(place: Place) -> None:
    theirs = place.submit(SOON, tenant="them")
    place.ended(theirs)
    answer = place.post("/v1/jobs", place.body(SOON, after=[theirs]))
    assert answer.json()["error"]["param"] == "after[0]"
    bulk = [place.body(SOON, after=[theirs], tenant=tenant) for tenant in ("them", "us")]
    answer = place.post("/v1/jobs/bulk", {"jobs": bulk})
    assert answer.json()["error"]["param"] == "jobs[1].after[0]"
    (job,) = place.post("/v1/jobs/bulk", {"jobs": bulk[:1]}).json()["ids"]
    assert place.ended(job)["state"] == "completed"


def test_jobs_of_one_bulk_may_wait_for_the_same(place: Place) -> None:
    first = place.submit(LONG)
    body = {"jobs": [place.body(SOON, after=[first]) for _ in range(5)]}
    ids = place.post("/v1/jobs/bulk", body).json()["ids"]
    assert {place.ended(job)["state"] for job in ids} == {"completed"}


def test_the_command_line_submits_and_shows_what_waits(place: Place) -> None:
    first = place.submit(LONG)
    environ = {"MLXQ_URL": place.server.base}
    words = ("submit", "hello", "--after", first, "--on-failure", "run", "--max-tokens", "2")
    second = CliRunner().invoke(cli, words, env=environ).output.strip()
    shown = CliRunner().invoke(cli, ("jobs", "show", second), env=environ).output
    assert f"after: {first} (open)" in shown
    assert place.ended(second)["state"] == "completed"


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def test_a_job_with_a_time_of_its_own_waits_for_both(place: Place) -> None:
    first = place.submit(LONG)
    before, behind = soon(0.1), soon(1.2)
    at_its_end = place.submit(SOON, after=[first], scheduled_at=before)
    at_its_time = place.submit(SOON, after=[first], scheduled_at=behind)
    end = place.ended(first)["finalized_at"]
    assert place.ended(at_its_end)["available_at"] >= end
    told = place.job(at_its_time)
    assert (told["state"], told["after"][0]["outcome"]) == ("scheduled", "completed")
    row = place.ended(at_its_time)
    assert row["available_at"] >= row["scheduled_at"] > end


@pytest.mark.parametrize(
    "sabotage",
    [f"die-before {DEPENDENTS}._ended 1", f"die-after {DEPENDENTS}.forget 2"],
)
@pytest.mark.parametrize("cancelled", [False, True], ids=["completed", "cancelled"])
def test_a_server_that_dies_between_an_end_and_what_follows_leaves_it_to_the_next(
    new_place: NewPlace, sabotage: str, cancelled: bool
) -> None:
    place = new_place({"step_s": 0.002})
    place.start(sabotage)
    first = place.submit("[[tokens=2000]]" if cancelled else "[[tokens=60]]")
    second = place.submit(SOON, after=[first])
    third = place.submit(SOON, after=[second])
    if cancelled:
        place.running(first)
        with suppress(httpx.HTTPError):
            place.cancel(first)
    place.parent_died()
    if place.store.job(first)["state"] == "completed":
        assert place.store.job(second)["state"] != "scheduled"
    place.start()
    expected = "failed" if cancelled else "completed"
    assert [place.ended(job)["state"] for job in (second, third)] == [expected, expected]
    assert reports(place, first, second, third) == [1, 1, 1]


def test_a_web_of_jobs_and_a_schedule_outlive_whatever_is_killed(new_place: NewPlace) -> None:
    place = new_place({"step_s": 0.004}, {"worker.rows": 4, "worker.heartbeat_timeout_s": 2})
    place.start()
    place.warm()
    run_web(place, seed=7, jobs=10, kills=2)
