"""Requests in the foreground go on over their worker's death, and end with their parent's."""

from contextlib import ExitStack

import pytest

from tests.durable.conftest import NewPlace
from tests.durable.disturbing import scripted
from tests.durable.place import assert_counted_once
from tests.e2e.calls import Call, error_of, finish_of, rest_of, text_of
from tests.e2e.store import failure_code, job_id
from tests.waiting import wait_until


@pytest.mark.timeout(120)
def test_streams_and_plain_requests_go_on_with_the_next_worker(new_place: NewPlace) -> None:
    place, load = new_place({"step_s": 0.01}), scripted(*[f"{n} [[tokens=80]]" for n in range(4)])
    server = place.start()
    with ExitStack() as stack:
        calls = [
            stack.enter_context(Call(server, asked.content, seed=asked.seed, stream=n < 3))
            for n, asked in enumerate(load.asked)
        ]
        begun = [call.read_text(20) for call in calls[:3]]
        place.worker().kill()
        for begin, events, said in zip(begun, rest_of(calls[:3]), load.said[:3], strict=True):
            assert error_of(events) is None
            assert (begin + text_of(events), finish_of(events)) == (said.text, "stop")
        answer = calls[3].body()
        assert answer["choices"][0]["message"]["content"] == load.said[3].text
        assert answer["usage"]["completion_tokens"] == len(load.said[3].tokens)
    jobs = [job_id(call.answer_id) for call in calls[:3]] + [job_id(answer["id"])]
    for job, said in zip(jobs, load.said, strict=True):
        first, second = place.attempts(job)
        assert (first["outcome"], second["outcome"]) == ("lost", "finished")
        assert second["replayed_tokens"] == first["delivered_tokens"] > 0
        row = place.ended(job)
        assert (row["completion_tokens"], row["losses"]) == (len(said.tokens), 1)
    assert_counted_once(place, jobs)


@pytest.mark.timeout(120)
def test_an_attached_request_that_no_worker_goes_on_with_in_time_gets_an_error_in_band(
    new_place: NewPlace,
) -> None:
    settings = {"server.resume_wait_s": 0.3}
    place = new_place({"step_s": 0.01, "load_s": 2}, settings)
    server = place.start()
    with Call(server, "[[tokens=100000]]") as call:
        call.read_text(5)
        place.worker().kill()
        error = error_of(list(call.events()))
    assert error is not None
    assert error["code"] == "worker_crashed"
    row = place.ended(job_id(call.answer_id))
    assert (row["state"], failure_code(row)) == ("failed", "worker_crashed")
    assert_counted_once(place, [row["id"]])


@pytest.mark.timeout(120)
def test_an_attached_request_of_two_attempts_is_counted_to_its_last_token_by_the_next_parent(
    new_place: NewPlace,
) -> None:
    place = new_place({"step_s": 0.01})
    server = place.start()
    with Call(server, "[[tokens=100000]]") as call:
        call.read_text(5)
        place.worker().kill()
        call.read_text(200)
        job = job_id(call.answer_id)
        wait_until(lambda: sum(a["delivered_tokens"] for a in place.attempts(job)) > 30)
        place.restart()
    row = place.ended(job)
    assert (row["state"], failure_code(row)) == ("failed", "parent_lost")
    assert place.outcomes(job) == ["lost", "stopped"]
    assert_counted_once(place, [job])


@pytest.mark.timeout(120)
def test_an_attached_request_goes_on_over_its_workers_death_while_a_drain_lets_it_finish(
    new_place: NewPlace,
) -> None:
    place, load = new_place({"step_s": 0.01}), scripted("[[tokens=100]]")
    (asked,), (said,) = load.asked, load.said
    server = place.start()
    with Call(server, asked.content, seed=asked.seed) as call:
        begin = call.read_text(5)
        place.post("/admin/v1/drain", {"mode": "finish", "timeout_s": 30})
        place.worker().kill()
        events = list(call.events())
    assert error_of(events) is None
    assert begin + text_of(events) == said.text
