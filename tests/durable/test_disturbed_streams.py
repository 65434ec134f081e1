"""Eight durable jobs are followed while processes die or stop: nobody notices in the text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.durable.disturbing import DEEDS, run_cancelled, run_disturbed
from tests.durable.loads import Loaded, scripted_load, tiny_load
from tests.durable.order import assert_in_order

SEED: Final = 1


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


@pytest.mark.timeout(180)
@pytest.mark.parametrize("deed", DEEDS)
def test_eight_streams_of_the_scripted_engine_go_on(scripted_eight: Loaded, deed: str) -> None:
    run_disturbed(*scripted_eight, [deed], SEED)
    assert_in_order(scripted_eight[0].store.path)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("deed", DEEDS)
def test_eight_streams_of_a_tiny_model_go_on(tiny_eight: Loaded, deed: str) -> None:
    run_disturbed(*tiny_eight, [deed], SEED)
    assert_in_order(tiny_eight[0].store.path)


@pytest.mark.timeout(180)
def test_jobs_are_cancelled_around_a_disturbance(scripted_eight: Loaded) -> None:
    run_cancelled(*scripted_eight, "both-killed", SEED)
    assert_in_order(scripted_eight[0].store.path)
