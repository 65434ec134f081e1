"""Whoever is killed or stopped, again and again, under eight followed jobs: all of it converges."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.durable.disturbing import DEEDS, Load, run_disturbed, scripted
from tests.durable.order import assert_in_order
from tests.durable.place import SLACK_S, Place
from tests.durable.receipts import assert_receipts
from tests.e2e.server import site_in
from tests.reliability.counts import NewCampaign
from tests.waiting import wait_until

JOBS: Final = 8
TOKENS: Final = 100
KILLS: Final = len(DEEDS)


@pytest.fixture
def killing_ground(tmp_path: Path, worker_cache: Path) -> Iterator[Place]:
    """A server that has a worker."""
    with site_in(tmp_path, worker_cache) as site:
        place = Place(site, {"step_s": 0.02})
        place.start()
        place.warm()
        yield place


def test_a_server_that_is_killed_again_and_again_loses_nothing(
    campaign: NewCampaign, killing_ground: Place
) -> None:
    """The small count is 10 kills: each kind (worker, parent, both, SIGSTOP of either) twice."""
    place = killing_ground

    def one_storm(seed: int) -> None:
        deeds = list(DEEDS)
        random.Random(seed).shuffle(deeds)
        run_disturbed(place, _load(seed), deeds, seed)
        place.server.wait_until_idle()
        wait_until(lambda: len(place.site.workers()) <= 1, SLACK_S, "the end of every other worker")
        assert_in_order(place.store.path)
        assert_receipts(place)

    campaign(small=2, large=5_000 // KILLS, unit=f"storms of {KILLS} kills").run(one_storm)


def _load(seed: int) -> Load:
    return scripted(*(f"job {n} of storm {seed} [[tokens={TOKENS}]]" for n in range(JOBS)))
