"""Jobs that wait for each other, and for the clock, under long campaigns. A seed repeats them."""

import os
import random
from typing import Final

import pytest

from tests.durable.conftest import NewPlace
from tests.durable.webs import run_web

SEED_VARIABLE: Final = "TORTURE_SEED"
ROUNDS: Final = 30

pytestmark = [pytest.mark.torture, pytest.mark.timeout(3600)]


def test_webs_of_jobs_outlive_whatever_is_killed(new_place: NewPlace) -> None:
    first = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(10**6))
    place = new_place({"step_s": 0.004}, {"worker.rows": 4, "worker.heartbeat_timeout_s": 2})
    place.start()
    place.warm()
    for seed in range(first, first + ROUNDS):
        try:
            run_web(place, seed, jobs=60, kills=6)
        except AssertionError as error:
            raise AssertionError(f"{SEED_VARIABLE}={seed} of {first}: {error}") from error
