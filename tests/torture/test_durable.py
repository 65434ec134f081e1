"""The durable core under long campaigns. Each run draws other moments; a seed repeats them."""

import os
import random
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Final

import pytest

from tests.durable.conftest import NewPlace
from tests.durable.disturbing import (
    DEEDS,
    assert_nothing_computed_again,
    assert_undisturbed,
    run_cancelled,
    run_disturbed,
    scripted,
)
from tests.durable.draining import COMMITS, killed_in_drain
from tests.durable.loads import Loaded, scripted_load, tiny_load
from tests.durable.order import assert_in_order
from tests.durable.place import Place
from tests.durable.streams import follow

SEED_VARIABLE: Final = "TORTURE_SEED"
ROUNDS: Final = 30
COMMIT: Final = "app.storage.committing:Committer.commit"

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


Round = Callable[[str, int], None]


def often(place: Place, seed: int, one_round: Round) -> None:
    """Thirty rounds, of each kind as many."""
    for number, deed in zip(range(ROUNDS), cycle(DEEDS), strict=False):
        try:
            one_round(deed, seed + number)
            assert_in_order(place.store.path)
        except BaseException as error:
            error.add_note(f"round {number}, {deed}; {SEED_VARIABLE}={seed} repeats it")
            raise


def test_thirty_disturbances_of_the_scripted_engine(scripted_eight: Loaded, seed: int) -> None:
    place, load = scripted_eight
    often(place, seed, lambda deed, number: run_disturbed(place, load, [deed], number))


def test_thirty_disturbances_of_a_tiny_model(tiny_eight: Loaded, seed: int) -> None:
    place, load = tiny_eight
    often(place, seed, lambda deed, number: run_disturbed(place, load, [deed], number))


def test_three_disturbances_at_a_time(scripted_eight: Loaded, seed: int) -> None:
    place, load = scripted_eight

    def one_round(deed: str, number: int) -> None:
        others = random.Random(number).choices(list(DEEDS), k=2)
        run_disturbed(place, load, [deed, *others], number)

    often(place, seed, one_round)


def test_cancels_around_thirty_disturbances(scripted_eight: Loaded, seed: int) -> None:
    place, load = scripted_eight
    often(place, seed, lambda deed, number: run_cancelled(place, load, deed, number))


def test_parents_that_die_at_each_commit_of_their_start(new_place: NewPlace) -> None:
    place = new_place({"step_s": 0.01})
    load = scripted(*(f"job {n} [[tokens=1500]]" for n in range(8)))
    place.start()
    streams = follow(place, load.submit(place))
    for stream in streams:
        place.running(stream.job)
    place.kill_parent()
    for commits in range(1, ROUNDS):
        place.start_and_die(f"die-before {COMMIT} {commits}")
        place.start_and_die(f"die-after {COMMIT} {commits}")
    place.start()
    assert_undisturbed(place, load, [stream.finished() for stream in streams])
    assert_nothing_computed_again(place, [stream.job for stream in streams])


def test_a_parent_killed_at_each_commit_of_a_drain(new_place: NewPlace) -> None:
    place = new_place({"step_s": 0.01})
    load = scripted(*(f"job {n} [[tokens=60]]" for n in range(8)))
    place.start()
    died = [killed_in_drain(place, load, commit) for commit in range(COMMITS)]
    assert died.count(True) > COMMITS // 2
