"""Jobs that the clock submits: each due fires once, whatever dies when."""

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from app.cli.main import cli
from tests.durable.place import SLACK_S, Place
from tests.e2e.store import Row
from tests.waiting import wait_until

NewPlace = Callable[..., Place]
FAR = "0 0 1 1 *"


def schedule(place: Place, name: str, status: int = 201, **fields: Any) -> dict[str, Any]:
    """A schedule of a short job, or its refusal."""
    job = place.body("[[tokens=1]]", **fields.pop("job", {}))
    rhythm = {} if "cron" in fields else {"every_s": 1}
    answer = place.post("/v1/schedules", {"name": name, "job": job, **rhythm, **fields})
    assert answer.status_code == status, answer.text
    return answer.json()


def asked(place: Place, method: str, name: str, body: Any = None) -> Any:
    return place.server.client.request(
        method, f"{place.server.base}/v1/schedules/{name}", json=body
    )


def firings(place: Place, schedule_id: str) -> list[Row]:
    return place.store.rows("SELECT * FROM firing WHERE schedule = ? ORDER BY due", schedule_id)


def fired(place: Place, schedule_id: str, count: int = 1) -> list[Row]:
    """The firings of a schedule, once there are so many."""
    wait_until(lambda: len(firings(place, schedule_id)) >= count, SLACK_S, "a firing")
    return firings(place, schedule_id)


def assert_each_due_fired_once(place: Place, schedule_id: str) -> None:
    """Every second from the first on has one firing, and each of them one job with one report."""
    found = firings(place, schedule_id)
    (row,) = place.store.rows("SELECT * FROM schedule WHERE id = ?", schedule_id)
    assert [firing["due"] for firing in found] == sorted({firing["due"] for firing in found})
    assert row["fired"] == len(found)
    assert row["last_due"] == found[-1]["due"] < (row["next_due"] or found[-1]["due"] + 1)
    for firing in found:
        assert place.ended(firing["job"])["state"] == "completed"
        (report,) = place.store.reports(firing["job"])
        assert report["payload"]["schedule"] == schedule_id


def test_each_due_submits_one_job_and_its_report_names_the_schedule(place: Place) -> None:
    made = schedule(place, "each")
    assert (made["state"], made["fired"], made["job"]["seed"]) == ("active", 0, 1)
    found = fired(place, made["id"], 2)
    assert found[1]["due"] - found[0]["due"] == 1_000_000
    told = asked(place, "PATCH", "each", {"paused": True}).json()
    assert (told["state"], told["next_due"]) == ("paused", None)
    assert place.job(told["last_job"])["schedule"] == made["id"]
    assert_each_due_fired_once(place, made["id"])
    assert asked(place, "DELETE", made["id"]).json()["deleted"] is True
    assert asked(place, "GET", "each").status_code == 404
    assert place.job(told["last_job"])["schedule"] == made["id"]


def test_a_schedule_without_a_seed_draws_one_for_each_job(place: Place) -> None:
    made = schedule(place, "seeds", job={"seed": None})
    assert made["job"]["seed"] is None
    jobs = [firing["job"] for firing in fired(place, made["id"], 2)]
    asked(place, "DELETE", "seeds")
    seeds = {place.ended(job)["seed"] for job in jobs}
    assert len(seeds) == 2


def test_a_schedule_is_changed_paused_and_goes_on_from_now(place: Place) -> None:
    made = schedule(place, "yearly", cron=FAR, timezone="Europe/Berlin", catch_up="none")
    assert made["next_due"].endswith("12-31T23:00:00Z")
    assert asked(place, "GET", "yearly").json() == made
    listed = {key: value for key, value in made.items() if key != "job"}
    assert place.server.get("/v1/schedules").json()["data"] == [listed]
    other = asked(place, "PATCH", "yearly", {"timezone": "UTC", "catch_up": "one"}).json()
    assert (other["next_due"][4:], other["catch_up"]) == ("-01-01T00:00:00Z", "one")
    assert asked(place, "PATCH", "yearly", {"paused": True}).json()["next_due"] is None
    assert asked(place, "PATCH", "yearly", {"paused": False}).json()["next_due"]
    theirs = {"job": place.body("x", tenant="them")}
    error = asked(place, "PATCH", "yearly", theirs).json()["error"]
    assert error["param"] == "job.tenant"
    other = {"job": place.body("[[tokens=2]]", priority=5)}
    assert asked(place, "PATCH", "yearly", other).json()["job"]["priority"] == 5
    soon = asked(place, "PATCH", "yearly", {"every_s": 1}).json()
    assert soon["cron"] is None
    fired(place, made["id"])
    asked(place, "DELETE", "yearly")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": FAR, "every_s": 5}, "every_s"),
        ({"every_s": 0.5}, "every_s"),
        ({"cron": FAR, "timezone": "Europe/Atlantis"}, "timezone"),
        ({"cron": FAR, "timezone": "Europe"}, "timezone"),
        ({"catch_up": "all"}, "catch_up"),
        ({"job": {"after": ["job_" + "0" * 32]}}, "job.after"),
        ({"job": {"scheduled_at": "2030-01-01T00:00:00Z"}}, "job.scheduled_at"),
        ({"job": {"priority": 5_000}}, "job.priority"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_named(
    place: Place, fields: dict[str, Any], param: str
) -> None:
    answer = schedule(place, "wrong", 400, **fields)
    assert answer["error"]["param"] == param, answer


def test_a_name_is_taken_once_and_a_model_must_be_there(place: Place) -> None:
    schedule(place, "once", cron=FAR)
    assert schedule(place, "once", 422, cron=FAR)["error"]["code"] == "schedule_exists"
    asked(place, "DELETE", "once")
    schedule(place, "sched_once", 400, cron=FAR)
    job = {**place.body("x"), "model": "nobody"}
    body = {"name": "nobody", "every_s": 1, "job": job}
    error = place.post("/v1/schedules", body).json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "job.model")


def mlxq(place: Place, *arguments: str) -> str:
    """What a command prints."""
    done = CliRunner().invoke(cli, arguments, env={"MLXQ_URL": place.server.base})
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_line_does_all_of_it(place: Place) -> None:
    when = ("--every", "3600", "--catch-up", "none", "--tag", "team=a", "--seed", "7")
    made = mlxq(place, "schedules", "add", "cli", "hello", *when).strip()
    assert mlxq(place, "schedules").startswith("cli\tactive\tevery 3600 s\t")
    assert "is due next at" not in mlxq(place, "schedules", "pause", "cli")
    told = mlxq(place, "schedules", "show", made)
    assert "state: paused" in told
    assert "catch_up: none" in told
    assert "cli is due next at" in mlxq(place, "schedules", "resume", "cli")
    assert asked(place, "GET", "cli").json()["job"]["tags"] == {"team": "a"}
    assert mlxq(place, "schedules", "rm", "cli") == "cli is deleted\n"
    assert mlxq(place, "schedules", "list") == ""


@pytest.mark.parametrize(
    "sabotage",
    [
        "die-before app.services.timetable:Timetable._fire 1",
        "die-after app.services.relay:Relay.admit 2",
    ],
)
def test_a_server_that_dies_between_a_due_and_its_job_leaves_it_to_the_next(
    new_place: NewPlace, sabotage: str
) -> None:
    place = new_place()
    place.start(sabotage)
    place.warm()
    made = schedule(place, "killed")
    place.parent_died()
    (row,) = place.store.rows("SELECT * FROM schedule")
    before = firings(place, made["id"])
    place.start()
    found = fired(place, made["id"], len(before) + 1)
    asked(place, "PATCH", "killed", {"paused": True})
    assert found[: len(before)] == before
    assert found[len(before)]["due"] >= row["next_due"]
    assert_each_due_fired_once(place, made["id"])
