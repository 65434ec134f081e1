"""Interactive jobs get a row from batch jobs, which lose nothing but time; and are not all."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from app.domain.preempting import FIRST_TOKENS
from tests.durable.margins import CLEAR, Margins
from tests.durable.place import Place, assert_counted_once
from tests.e2e.server import Site
from tests.fair.conftest import NewPlace
from tests.models import make_tiny_llama
from tests.waiting import wait_until

MICROS = 1_000_000
STEP_S = 0.1
SEED = 18
LINES = {f"[[tokens={65 + n}]] line {n}": n for n in range(5)}


def undisturbed(new_place: NewPlace) -> dict[str, list[int]]:
    """The tokens of each line when nothing else runs."""
    place = new_place({}, {"worker.rows": 3})
    jobs = {line: submit(place, "batch", line, seed) for line, seed in LINES.items()}
    for job in jobs.values():
        place.ended(job)
    tokens = {line: place.tokens(job) for line, job in jobs.items()}
    place.stop()
    return tokens


def submit(place: Place, job_class: str, content: str, seed: int = 1) -> str:
    fields = {"class": job_class}
    return place.submit(content, seed, **fields)


def accepted_after_s(place: Place, job: str) -> float:
    row = place.ended(job)
    return (row["started_at"] - row["created_at"]) / MICROS


@pytest.mark.quiet
def test_an_interactive_job_gets_a_batch_row_within_two_steps_and_no_token_changes(
    new_place: NewPlace,
) -> None:
    expected = undisturbed(new_place)
    place = new_place({"step_s": STEP_S}, {"worker.rows": 3})
    jobs = {line: submit(place, "batch", line, seed) for line, seed in LINES.items()}
    first = list(jobs.values())[:3]
    for job in first:
        place.running(job, FIRST_TOKENS + 1)
    assert len([job for job in jobs.values() if place.store.job(job)["started_at"]]) == 3
    urgent = submit(place, "interactive", "[[tokens=2]]")
    assert accepted_after_s(place, urgent) <= 2 * STEP_S + 0.02
    burst = [submit(place, "interactive", "[[tokens=2]]", n) for n in range(2)]
    for job in burst:
        assert accepted_after_s(place, job) <= 4 * STEP_S
    for line, job in jobs.items():
        assert place.ended(job)["state"] == "completed"
        assert place.tokens(job) == expected[line]
    given_way = [job for job in first if place.store.job(job)["preemptions"]]
    assert 1 <= len(given_way) <= 3
    assert all("preempted" in place.outcomes(job) for job in given_way)
    assert_counted_once(place, [urgent, *burst, *jobs.values()])


def test_a_row_of_real_mlx_goes_on_with_its_undisturbed_tokens(
    new_place: NewPlace, site: Site
) -> None:
    path = make_tiny_llama(site.data_dir / "models" / "tiny")
    settings = {"worker.rows": 1, "worker.dtype": "float32"}
    place = new_place({}, settings, engine="mlx", model="tiny")
    content, body, fields = "Tell me a lot.", {"max_tokens": 900}, {"class": "batch"}
    alone = place.submit(content, SEED, body=body, **fields)
    place.ended(alone)

    def interrupted() -> str:
        batch = place.submit(content, SEED, body=body, **fields)
        place.running(batch, FIRST_TOKENS + 1)
        urgent = place.submit("Be quick.", 1, body={"max_tokens": 2}, **{"class": "interactive"})
        assert place.ended(urgent)["state"] == "completed"
        return batch if place.ended(batch)["preemptions"] else ""

    # A second's work may be over before a busy disk has taken the request for its row.
    batch = next(filter(None, (interrupted() for _ in range(5))))
    tokens = place.tokens(alone)
    margins = Margins(path)
    assert margins.least(content, SEED, 0.8, tokens) > CLEAR, "take another seed"
    margins.close()
    assert place.tokens(batch) == tokens


def test_a_row_in_its_first_tokens_is_left_alone(new_place: NewPlace) -> None:
    place = new_place({"step_s": 0.02}, {"worker.rows": 1})
    batch = submit(place, "batch", "[[tokens=20]]")
    place.running(batch)
    urgent = submit(place, "interactive", "[[tokens=1]]")
    assert place.ended(urgent)["started_at"] >= place.ended(batch)["finalized_at"]
    assert place.outcomes(batch) == ["finished"]


def test_a_batch_under_constant_interactive_load_ends(new_place: NewPlace) -> None:
    settings = {"worker.rows": 2, "worker.prefetch": 1, "queue.starve_s": 0.3}
    place = new_place({"step_s": 0.002}, settings)
    ended = False

    def load(client: int) -> int:
        made = 0
        while not ended:
            job = submit(place, "interactive", "[[tokens=10]]", client)
            place.ended(job)
            made += 1
        return made

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(load, n) for n in range(4)]
        wait_until(lambda: place.store.count() > 8, 10, "the load")
        batch = [submit(place, "batch", "[[tokens=60]]", n) for n in range(2)]
        try:
            assert [place.ended(job)["state"] for job in batch] == ["completed"] * 2
        finally:
            ended = True
        assert all(client.result() for client in clients)
