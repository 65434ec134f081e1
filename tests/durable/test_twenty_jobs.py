"""The same load that other job servers were measured with: a worker dies early in it."""

import time
from typing import Final

import pytest

from tests.durable.conftest import NewPlace
from tests.durable.disturbing import assert_undisturbed, scripted
from tests.durable.figures import tell
from tests.durable.streams import follow
from tests.waiting import wait_until

JOBS: Final = 20
TOKENS: Final = 40
STEP_S: Final = 0.05
KILLED_AT_S: Final = 0.7
DONE_BY_S: Final = 13.0


@pytest.mark.quiet
@pytest.mark.timeout(120)
def test_twenty_jobs_on_four_rows_all_end_once_within_thirteen_seconds(
    new_place: NewPlace,
) -> None:
    load = scripted(*(f"job {n} [[tokens={TOKENS - 1}]]" for n in range(JOBS)))
    place = new_place({"step_s": STEP_S}, {"worker.rows": 4})
    place.start()
    place.warm()
    began = time.monotonic()
    streams = follow(place, load.submit(place))
    wait_until(lambda: time.monotonic() >= began + KILLED_AT_S)
    place.worker().kill()
    for stream in streams:
        stream.finished()
    took = time.monotonic() - began
    tell("20 jobs over a worker's death", took, "s")
    assert_undisturbed(place, load, streams)
    assert took <= DONE_BY_S
