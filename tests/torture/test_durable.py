"""The durable core under long campaigns. Each run draws other moments; a seed repeats them."""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.durable.conftest import NewPlace
from tests.durable.disturbing import DEEDS, run_disturbed, scripted
from tests.durable.draining import COMMITS, killed_in_drain
from tests.durable.loads import Loaded, scripted_load, tiny_load
from tests.durable.order import assert_in_order

SEED_VARIABLE: Final = "TORTURE_SEED"
ROUNDS: Final = 30

pytestmark = [pytest.mark.torture, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def seed() -> int:
    """``TORTURE_SEED``, or a new one; it is in the message of what fails."""
    return int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(10**6))


@pytest.fixture(scope="module")
def scripted_eight(
    tmp_path_factory: pytest.TempPathFactory, worker_cache: Path
) -> Iterator[Loaded]:
    with scripted_load(tmp_path_factory.mktemp("scripted-eight"), worker_cache) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def tiny_eight(tmp_path_factory: pytest.TempPathFactory, worker_cache: Path) -> Iterator[Loaded]:
    with tiny_load(tmp_path_factory.mktemp("tiny-eight"), worker_cache) as loaded:
        yield loaded


def disturb_often(loaded: Loaded, seed: int) -> None:
    """Thirty rounds of whatever comes."""
    deeds = list(DEEDS)
    for number in range(ROUNDS):
        deed = deeds[number % len(deeds)]
        try:
            run_disturbed(*loaded, deed, seed + number)
            assert_in_order(loaded[0].store.path)
        except BaseException as error:
            error.add_note(f"round {number}, {deed}; {SEED_VARIABLE}={seed} repeats it")
            raise


def test_thirty_disturbances_of_the_scripted_engine(scripted_eight: Loaded, seed: int) -> None:
    disturb_often(scripted_eight, seed)


def test_thirty_disturbances_of_a_tiny_model(tiny_eight: Loaded, seed: int) -> None:
    disturb_often(tiny_eight, seed)


def test_a_parent_killed_at_each_commit_of_a_drain(new_place: NewPlace) -> None:
    place = new_place({"step_s": 0.01})
    load = scripted(*(f"job {n} [[tokens=60]]" for n in range(8)))
    place.start()
    died = [killed_in_drain(place, load, commit) for commit in range(COMMITS)]
    assert died.count(True) > COMMITS // 2
