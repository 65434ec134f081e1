"""Eight durable jobs in a drain, and what it must come to."""

import subprocess
from contextlib import suppress
from typing import Any, Final

import httpx

from tests.durable.disturbing import Load, assert_undisturbed
from tests.durable.place import SLACK_S, Place
from tests.durable.streams import JobStream, follow
from tests.waiting import wait_until

COMMITS: Final = 14
"""About as many as a checkpointing drain of eight jobs has."""


def drain(place: Place, mode: str, timeout_s: float = 30) -> dict[str, Any]:
    """Begin a drain."""
    answer = place.post("/admin/v1/drain", {"mode": mode, "timeout_s": timeout_s})
    assert answer.status_code == 202, answer.text
    return answer.json()


def drained(place: Place) -> dict[str, Any]:
    """The drain, once it has ended."""

    def ended() -> dict[str, Any] | None:
        view = place.server.get("/admin/v1/drain").json()
        return view if view["state"] != "running" else None

    found = wait_until(ended, SLACK_S, "the drain's end")
    assert found is not None
    return found


def assert_proven(place: Place, view: dict[str, Any]) -> None:
    """The counts add up, and the report says the same."""
    settled = view["finished"] + view["given_back"] + view["cancelled"]
    assert settled == view["in_flight"], view
    (report,) = place.store.reports(view["id"])
    assert report["kind"] == "drain"
    assert report["outcome"] == view["state"] == "completed"
    for count in ("in_flight", "finished", "given_back", "cancelled"):
        assert report["payload"][count] == view[count]


def begun(place: Place, load: Load) -> list[JobStream]:
    """Streams of jobs that all run."""
    streams = follow(place, load.submit(place))
    for stream in streams:
        place.running(stream.job, 5)
    return streams


def killed_in_drain(place: Place, load: Load, commit: int) -> bool:
    """Kill the server at its so-manieth commit of a checkpointing drain, and see that nothing is
    missing. Says whether the drain was long enough for that."""
    place.restart(f"die-in-drain {commit}")
    streams = begun(place, load)
    with suppress(httpx.HTTPError):
        drain(place, "checkpoint")
    with suppress(subprocess.TimeoutExpired):
        place.parent_died(2)
    died = place.server.process.poll() is not None
    place.restart()
    assert_undisturbed(place, load, [stream.finished() for stream in streams])
    for row in place.store.rows("SELECT * FROM drain"):
        (report,) = place.store.reports(row["id"])
        assert report["outcome"] == row["state"] != "running"
    return died
