"""A prompt of 5 MiB: kept while there is no worker, sent in parts when there is one."""

from typing import Final

import pytest

from tests.durable.conftest import NewPlace
from tests.durable.place import assert_counted_once
from tests.durable.streams import JobStream
from tests.e2e.store import failure_code

PROMPT: Final = "x" * 5 * 1024 * 1024
SAY: Final = " [[say=all of it]]"
DEADLINE_S: Final = 10.0


@pytest.mark.timeout(120)
def test_a_job_that_no_worker_takes_fails_at_its_deadline(new_place: NewPlace) -> None:
    place = new_place({"load_s": 3600})
    place.start()
    job = place.submit(PROMPT, deadline_s=DEADLINE_S)
    stream = JobStream(place, job).finished()
    row = place.ended(job)
    took_s = (row["finalized_at"] - row["created_at"]) / 1e6
    assert DEADLINE_S <= took_s <= DEADLINE_S + 1
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
    job = place.submit(PROMPT + SAY)
    assert place.worker()
    place.restart()
    stream = JobStream(place, job).finished()
    assert stream.text == "all of it"
    row = place.ended(job)
    assert (row["state"], failure_code(row)) == ("completed", None)
    marks_around_it = 5
    assert row["prompt_tokens"] == len(PROMPT) + len(SAY) + marks_around_it
    assert_counted_once(place, [job])
