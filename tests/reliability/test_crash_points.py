"""A process that is killed at any named point costs nobody anything."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durable.hooked import HOOKED
from tests.durable.place import Place
from tests.e2e.server import site_in
from tests.reliability.counts import NewCampaign
from tests.reliability.crash_points import POINTS, Point, Side
from tests.reliability.crash_scenes import SCENES, Day, orders

ROUNDS_LARGE = 20


@pytest.fixture
def scripted_place(tmp_path: Path, worker_cache: Path) -> Iterator[Place]:
    """A server that has a worker."""
    with site_in(tmp_path, worker_cache) as site:
        place = Place(site, {"step_s": 0.004}, {**HOOKED, "server.cancel_wait_s": 0.1})
        place.start(*orders(place))
        place.warm()
        yield place


def test_every_point_has_a_name_of_its_own_and_a_scene() -> None:
    titles = [point.title for point in POINTS]
    assert len(titles) == len(set(titles))
    assert {point.scene for point in POINTS} == SCENES.keys()


@pytest.mark.parametrize(("scene", "side"), sorted({(p.scene, p.side) for p in POINTS}))
def test_whoever_is_killed_there_everything_converges(
    campaign: NewCampaign, scripted_place: Place, scene: str, side: Side
) -> None:
    points = [point for point in POINTS if point.scene == scene and point.side is side]

    def one_round(seed: int) -> None:
        for point in points:
            _one(scripted_place, point, seed)

    unit = f"rounds of {len(points)} points"
    campaign(small=1, large=ROUNDS_LARGE, unit=unit).run(one_round)


def _one(place: Place, point: Point, seed: int) -> None:
    day = Day(place, point, random.Random(f"{seed} {point.title}"))
    try:
        SCENES[point.scene](day)
    except BaseException as error:
        error.add_note(f"at: {point.title}; the server's last words: {_last_words(place)}")
        raise


def _last_words(place: Place) -> str:
    log = place.site.log
    return log.read_text()[-4_000:] if log.exists() else ""
