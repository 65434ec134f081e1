"""The shipped parent and workers in virtual time, under everything that may befall them.

A seed plays clients, faults and moments; it fails when an accepted job does not end as it must, an
event is shown twice or not at all, a token is counted twice, or the store is out of order.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from app.domain.transitions import TRANSITIONS
from tests.reliability.counts import NewCampaign
from tests.reliability.simulation.faults import every_kind
from tests.reliability.simulation.playing import play

EVENTS_MIN = 500
ROOT = Path(__file__).parents[2]


def test_every_seed_comes_to_rest_in_order(campaign: NewCampaign) -> None:
    suite = campaign(small=300, large=100_000, unit="seeds")
    hits: Counter[str] = Counter()
    events: list[int] = []

    def one(seed: int) -> None:
        played = play(seed)
        hits.update(played.hits)
        events.append(played.events)

    suite.run(one)
    assert min(events) >= EVENTS_MIN
    if not suite.alone:
        assert_all_met(hits)


def assert_all_met(hits: Counter[str]) -> None:
    """Each kind of fault happened, and each move of the job table was made."""
    faults = {f"fault {kind}" for kind in every_kind()}
    moves = {f"transition {state} {event}" for state, row in TRANSITIONS.items() for event in row}
    assert (faults | moves) - set(hits) == set()


def test_a_seed_does_the_same_twice(campaign: NewCampaign) -> None:
    def one(seed: int) -> None:
        first, second = play(seed), play(seed)
        assert (first.digest, first.events, first.hits) == (
            second.digest,
            second.events,
            second.hits,
        )

    campaign(small=3, large=300, unit="seeds twice").run(one)


def test_a_seed_does_the_same_in_another_process() -> None:
    """Under other hashes of strings, so that no order of a set decides anything."""
    code = "from tests.reliability.simulation.playing import play; print(play(7).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
