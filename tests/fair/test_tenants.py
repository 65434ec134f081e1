"""Tenants share a model by tokens, and none of them can fill it for the others."""

import statistics
from collections import Counter
from typing import Any

from tests.durable.place import Place
from tests.e2e.store import Row
from tests.fair.conftest import NewPlace
from tests.waiting import wait_until

MICROS = 1_000_000


def submit_many(place: Place, count: int, content: str, **fields: Any) -> list[str]:
    """Jobs that are submitted together."""
    ids: list[str] = []
    for first in range(0, count, 1_000):
        bulk = [place.body(content, **fields) for _ in range(min(1_000, count - first))]
        answer = place.post("/v1/jobs/bulk", {"jobs": bulk})
        assert answer.status_code == 202, answer.text
        ids += answer.json()["ids"]
    return ids


def told(place: Place, job: str, tenant: str) -> Row:
    """The job as its tenant is told."""
    return place.server.get(f"/v1/jobs/{job}?tenant={tenant}").json()


def took_s(jobs: list[Row]) -> list[float]:
    return [(row["finalized_at"] - row["started_at"]) / MICROS for row in jobs]


def test_a_tenant_with_one_job_starts_within_two_job_times_beside_one_with_5000(
    new_place: NewPlace,
) -> None:
    place = new_place({"step_s": 0.01}, {"worker.rows": 4})
    crowd = submit_many(place, 5_000, "[[tokens=30]]", tenant="many")
    wait_until(lambda: place.store.job(crowd[8])["state"] == "completed", 20, "a few of the crowd")
    one = place.submit("[[tokens=1]]", tenant="one")
    position = (told(place, one, "one")["queue"] or {"position": 0})["position"]
    assert position <= 2
    last = told(place, crowd[-1], "many")["queue"]["position"]
    assert last > 4_000
    row = place.ended(one)
    sql = "SELECT * FROM job WHERE tenant = 'many' AND state = 'completed' ORDER BY finalized_at"
    job_s = max(took_s(place.store.rows(sql)[-12:]))
    assert (row["started_at"] - row["created_at"]) / MICROS <= 2 * job_s


def test_four_tenants_with_unequal_prompts_get_the_same_tokens(new_place: NewPlace) -> None:
    place = new_place({}, {"worker.rows": 4, "worker.prefill_chunk_tokens": 2_048})
    sizes = {"a": 20, "b": 200, "c": 700, "d": 1_500}
    share = 12_000
    for tenant, chars in sizes.items():
        text = f"{'x' * chars} [[tokens=4]]"
        submit_many(place, 2 * share // chars, text, tenant=tenant, body={"max_tokens": 8})

    def served() -> Counter[str]:
        rows = place.store.rows("SELECT tenant, prompt_tokens + completion_tokens AS n FROM job")
        return Counter(
            {t: sum(row["n"] for row in rows if row["tenant"] == t) for t in sizes},
        )

    wait_until(lambda: served().total() >= 4 * share, 40, "enough tokens")
    got = [served()[tenant] for tenant in sizes]
    states = place.store.rows("SELECT DISTINCT tenant FROM job WHERE state = 'available'")
    assert len(states) == 4, "everybody still waits"
    assert statistics.fmean(got) ** 2 / statistics.fmean(n * n for n in got) >= 0.95


def test_a_tenant_over_its_limits_is_refused_or_waits_and_others_pass(new_place: NewPlace) -> None:
    limits = {"queue.tenant_max": 2, "queue.tenant_rows_max": 1}
    place = new_place({"step_s": 0.01}, {"worker.rows": 2, "worker.prefetch": 0, **limits})
    endless = "[[tokens=5000]]"
    running = place.submit(endless, tenant="a")
    place.running(running)
    waiting = [place.submit(endless, tenant="a") for _ in range(2)]
    assert [told(place, job, "a")["queue"]["position"] for job in waiting] == [0, 1]
    refused = place.post("/v1/jobs", place.body(endless, tenant="a"))
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "queue_full"
    assert refused.json()["error"]["queue"]["position"] == 2
    assert refused.headers["retry-after"]
    other = place.submit("[[tokens=1]]", tenant="b")
    assert place.ended(other)["state"] == "completed"
    assert {place.store.job(job)["attempt"] for job in waiting} == {0}
