"""A prompt of 5 MiB: kept while there is no worker, sent in parts when there is one."""

import time
from typing import Final

import pytest

from tests.durable.conftest import NewPlace
from tests.durable.place import assert_counted_once
from tests.durable.streams import JobStream
from tests.e2e.store import failure_code

PROMPT: Final = "x" * 5 * 1024 * 1024
DEADLINE_S: Final = 10.0


@pytest.mark.timeout(120)
def test_a_job_that_no_worker_takes_fails_at_its_deadline(new_place: NewPlace) -> None:
    place = new_place({"load_s": 3600})
    place.start()
    began = time.monotonic()
    job = place.submit(PROMPT, deadline_s=DEADLINE_S)
    stream = JobStream(place, job).finished()
    took = time.monotonic() - began
    assert DEADLINE_S - 0.1 <= took <= DEADLINE_S + 2
    failure = stream.ending["failure"]
    assert failure["code"] == "model_unavailable"
    assert "None" not in failure["message"]
    assert place.outcomes(job) == []
    assert_counted_once(place, [job])


@pytest.mark.timeout(120)
def test_it_outlives_its_parent_and_reaches_the_worker_whole(new_place: NewPlace) -> None:
    script = {"load_s": 1, "context_tokens": 8_000_000}
    place = new_place(script, {"worker.prefill_chunk_tokens": 65_536})
    place.start()
    job = place.submit(PROMPT + " [[say=all of it]]")
    place.restart()
    stream = JobStream(place, job).finished()
    assert stream.text == "all of it"
    row = place.ended(job)
    marks = 4 + 2 - 1
    assert row["prompt_tokens"] == len(PROMPT) + len(" [[say=all of it]]") + marks
    assert (row["state"], failure_code(row)) == ("completed", None)
    assert_counted_once(place, [job])
