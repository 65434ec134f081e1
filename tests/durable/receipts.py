"""What is told of worker generations, and what must be true of it."""

from typing import Any, Final

from app.domain.receipts import Rank
from tests.durable.conftest import NewPlace
from tests.durable.place import SLACK_S, Place
from tests.e2e.store import Row
from tests.waiting import wait_until

PREPARE: Final = "/v1/admin/prepare-stop"
ENDLESS: Final = "[[tokens=100000]]"
SERVED: Final = 3
"""Jobs that a worker has served when a test begins, of ``TOKENS`` tokens each."""
TOKENS: Final = 6
_SUMS: Final = (
    "SELECT count(accepted_at) AS jobs, coalesce(sum(prompt_tokens), 0) AS prompt_tokens,"
    " coalesce(sum(delivered_tokens), 0) AS completion_tokens FROM attempt WHERE generation = ?"
)


def serving(new_place: NewPlace, *sabotage: str, **script: Any) -> Place:
    """A server whose worker has served ``SERVED`` jobs."""
    place = new_place({"step_s": 0.005, **script}, {"worker.heartbeat_interval_s": 0.1})
    place.start(*sabotage)
    for number in range(SERVED):
        place.ended(place.submit(f"{number} [[tokens={TOKENS - 1}]]"))
    return place


def restarted(place: Place) -> None:
    """The server has died; the next one finds what it left."""
    place.parent_died()
    place.start()


def generations(place: Place) -> list[Row]:
    """Every one there was, the oldest first."""
    return place.store.rows("SELECT * FROM generation ORDER BY id")


def receipts(place: Place) -> list[Row]:
    """Every receipt in the feed, in its order, with its content."""
    subjects = [row["id"] for row in generations(place)]
    found = [report for subject in subjects for report in place.store.reports(subject)]
    return sorted(found, key=lambda report: report["seq"])


def receipt(place: Place, generation: str | None = None) -> Row:
    """The one receipt that counts: of this generation, or of the only one there was."""
    (found,) = [
        report
        for report in receipts(place)
        if not report["tombstone"] and generation in (None, report["subject"])
    ]
    return found


def assert_receipts(place: Place) -> None:
    """Each generation that is over has one, whose totals are the sums over its attempts; where the
    worker was asked they are its own, so that its receipt is a sealed one."""
    rows = generations(place)
    for row in rows:
        if row["state"] not in ("lost", "gone"):
            continue
        counted = [r for r in place.store.reports(row["id"]) if not r["tombstone"]]
        assert len(counted) == 1, row["id"]
        said = counted[0]["payload"]
        (sums,) = place.store.rows(_SUMS, row["id"])
        usage = said["usage"]
        assert said["jobs"] == sums["jobs"], row["id"]
        assert usage["prompt_tokens"] == sums["prompt_tokens"], row["id"]
        assert usage["completion_tokens"] == sums["completion_tokens"], row["id"]
        if said["worker"] is not None:
            assert counted[0]["rank"] == Rank.SEALED, row["id"]
            assert said["worker"]["completion_tokens"] == usage["completion_tokens"]
            assert said["worker"]["attempts"] == said["jobs"]


def assert_sealed(place: Place, jobs: int = SERVED) -> None:
    """The one receipt that counts is a seal, of so many jobs."""
    found = receipt(place)
    said = found["payload"]
    assert (found["rank"], found["outcome"], said["complete"]) == (3, "sealed", True)
    assert (said["reason"], said["jobs"]) == ("stopped", jobs)
    assert said["worker"]["completion_tokens"] == said["usage"]["completion_tokens"]
    assert_receipts(place)


def pending(place: Place) -> list[dict[str, Any]]:
    """Receipts that were not booked yet."""
    return place.server.get("/accounting/pending").json()["receipts"]


def prepare_stop(place: Place, **fields: Any) -> Any:
    """The answer to a request that a worker be stopped."""
    return place.server.client.post(f"{place.server.base}{PREPARE}", json=fields, timeout=60)


def gone(place: Place, generation: str | None = None) -> Row:
    """The generation's row, once its process is known to be dead."""
    known = generation or generations(place)[0]["id"]

    def row() -> Row | None:
        (found,) = [g for g in generations(place) if g["id"] == known]
        return found if found["state"] == "gone" else None

    found = wait_until(row, SLACK_S, f"the end of {known}")
    assert found
    return found
