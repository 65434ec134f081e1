"""A key makes one job of any number of requests, whatever happens between them."""

import http.client
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.durable.conftest import NewPlace
from tests.durable.place import Place, assert_counted_once


def submitted(place: Place, key: str, content: str = "[[tokens=5]]") -> httpx.Response:
    return place.post("/v1/jobs", place.body(content), Idempotency_Key=key)


def test_requests_with_the_same_key_at_the_same_time_are_one_job(place: Place) -> None:
    before = place.store.count()
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(submitted, [place] * 12, ["at-once"] * 12))
    assert {answer.status_code for answer in answers} == {202}
    (job,) = {answer.json()["id"] for answer in answers}
    replayed = [answer.headers.get("idempotent-replayed") for answer in answers]
    assert sorted(map(str, replayed)) == ["None", *["true"] * 11]
    assert place.store.count() == before + 1
    place.ended(job)
    assert submitted(place, "at-once").json()["id"] == job
    assert_counted_once(place, [job])


def test_another_body_under_the_same_key_is_refused(place: Place) -> None:
    job = submitted(place, "bodies").json()["id"]
    before = place.store.count()
    refused = submitted(place, "bodies", "[[tokens=6]]")
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "idempotency_key_mismatch"
    assert place.store.count() == before
    assert place.ended(job)["state"] == "completed"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_parent_killed_around_the_insert_leaves_one_job_or_none(
    new_place: NewPlace, moment: str
) -> None:
    place = new_place({"step_s": 0.01})
    place.start(f"die-{moment}-insert")
    with pytest.raises((httpx.HTTPError, http.client.HTTPException)):
        submitted(place, "killed")
    place.parent_died()
    place.start()
    answer = submitted(place, "killed")
    assert answer.status_code == 202
    assert answer.headers.get("idempotent-replayed") == ("true" if moment == "after" else None)
    job: dict[str, Any] = answer.json()
    assert [row["id"] for row in place.store.jobs()] == [job["id"]]
    place.ended(job["id"])
    assert_counted_once(place, [job["id"]])


def submitted_together(place: Place, key: str, *contents: str) -> httpx.Response:
    jobs = {"jobs": [place.body(content) for content in contents]}
    return place.post("/v1/jobs/bulk", jobs, Idempotency_Key=key)


def test_bulks_with_the_same_key_at_the_same_time_are_the_same_jobs(place: Place) -> None:
    before = place.store.count()
    contents = [f"{n} [[tokens=3]]" for n in range(12)]
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(submitted_together, place, "many", *contents) for _ in range(6)]
        answers = [answer.result() for answer in asked]
    assert {answer.status_code for answer in answers} == {202}
    (ids,) = {tuple(answer.json()["ids"]) for answer in answers}
    replayed = [answer.headers.get("idempotent-replayed") for answer in answers]
    assert sorted(map(str, replayed)) == ["None", *["true"] * 5]
    assert place.store.count() == before + 12
    assert [place.store.job(job)["id"] for job in ids] == list(ids)
    refused = submitted_together(place, "many", *contents[:-1])
    assert (refused.status_code, refused.json()["error"]["code"]) == (
        422,
        "idempotency_key_mismatch",
    )
    for job in ids:
        place.ended(job)
    assert_counted_once(place, list(ids))


def test_a_retry_that_is_sent_again_with_its_key_is_one_job(place: Place) -> None:
    job = submitted(place, "to-retry").json()["id"]
    place.ended(job)
    answers = [place.post(f"/v1/jobs/{job}/retry", None, Idempotency_Key="r") for _ in range(2)]
    first, again = (answer.json()["id"] for answer in answers)
    assert first == again != job
    assert answers[1].headers["idempotent-replayed"] == "true"
