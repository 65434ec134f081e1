"""A model whose workers die: what people are told, what an operator sees, and how it goes on."""

from typing import Any, Final

from tests.durable.place import Place
from tests.rough.conftest import Begin
from tests.waiting import wait_until

BROKEN: Final = {"load_error": "The weights are damaged."}
STRICT: Final = {"worker.restart_limit": 1, "worker.restart_window_s": 60}
RESET: Final = "/admin/v1/models/scripted/reset"


def budget(place: Place) -> dict[str, Any]:
    """What the status says of the model's restarts."""
    (told,) = place.server.get("/admin/v1/status").json()["restarts"]
    return told


def exhausted(place: Place) -> bool:
    return (
        bool(place.server.get("/admin/v1/status").json()["restarts"]) and budget(place)["exhausted"]
    )


def test_an_exhausted_budget_is_told_everywhere_and_an_operator_resets_it(begin: Begin) -> None:
    place = begin(script=BROKEN, settings=STRICT)
    job = place.submit("[[tokens=3]]")
    wait_until(lambda: exhausted(place), 20, "the end of the budget")
    told = budget(place)
    assert (told["model"], told["deaths"], told["limit"]) == ("scripted", 1, 1)
    assert "The weights are damaged." in told["reason"]
    assert 0 < told["next_try_s"] <= 60
    assert place.server.get("/readyz").status_code == 503
    refused = place.server.chat("hello")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_unavailable")
    assert "The weights are damaged." in refused.json()["error"]["message"]
    assert place.server.metric("restart_exhausted") == 1
    assert place.server.metric("restart_deaths") == 1
    assert place.server.metric("restart_next_try_seconds") > 0
    assert place.job(job)["state"] == "available"
    starts = place.server.metric("worker_starts_total")
    answer = place.post(RESET)
    assert (answer.status_code, answer.json()["deaths"]) == (200, 0)
    wait_until(lambda: place.server.metric("worker_starts_total") > starts, 20, "the next try")
    assert place.post("/admin/v1/models/nobody/reset").status_code == 404
    assert place.cancel(job)["state"] == "cancelled"


def test_the_status_tells_of_a_worker_as_it_loads_and_as_it_works(begin: Begin) -> None:
    place = begin(script={"load_s": 1.0, "step_s": 0.02}, settings={"worker.rows": 4})
    job = place.submit("[[tokens=100]]")

    def worker() -> dict[str, Any]:
        workers: list[dict[str, Any]] = place.server.get("/admin/v1/status").json()["workers"]
        return workers[0] if workers else {}

    loading = wait_until(lambda: worker().get("loading"), 20, "a worker that loads")
    assert loading is not None
    assert loading["stage"] in {"arithmetic", "weights", "warm_up"}
    assert worker()["rows"] is None
    assert worker()["gate"] == "loading"
    place.running(job)
    wait_until(lambda: worker()["running"] == 1, 20, "a heartbeat")
    told = worker()
    assert told["pid"] == place.worker().pid
    assert (told["model"], told["state"], told["gate"]) == ("scripted", "ready", "serving")
    told_of = place.server.get("/metrics").text.splitlines()
    assert 'mlxq_worker_gates{gate="serving",model="scripted"} 1.0' in told_of
    assert (told["rows"], told["held"], told["loading"]) == (4, 1, None)
    place.ended(job)


def test_a_worker_that_was_left_alone_and_went_is_charged_to_nobody(begin: Begin) -> None:
    place = begin(settings={"worker.orphan_grace_s": 1})
    place.running(place.submit("[[tokens=100000]]"))
    place.kill_parent()
    wait_until(lambda: not place.site.workers(), 10, "the orphan's leaving")
    place.start()
    place.ended(place.submit("[[tokens=1]]"))
    (told,) = place.server.get("/admin/v1/status").json()["restarts"]
    assert told["deaths"] == 0
