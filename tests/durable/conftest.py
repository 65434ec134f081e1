"""Places for durable work, which must be in order when a test leaves them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.durable.order import assert_in_order
from tests.durable.place import Place
from tests.e2e.server import Site, site_in

NewPlace = Callable[..., Place]


@pytest.fixture
def new_place(site: Site) -> Iterator[NewPlace]:
    """Makes the test's place, whose server is not started yet."""
    places: list[Place] = []

    def make(*args: Any, **kwargs: Any) -> Place:
        place = Place(site, *args, **kwargs)
        places.append(place)
        return place

    yield make
    site.kill_all()
    for place in places:
        assert_in_order(place.store.path)


@pytest.fixture(scope="package")
def shared_place(tmp_path_factory: pytest.TempPathFactory, worker_cache: Path) -> Iterator[Place]:
    """A server with four rows and a step of 10 ms, for tests that leave it idle."""
    with site_in(tmp_path_factory.mktemp("durable"), worker_cache) as site:
        place = Place(site, {"step_s": 0.01}, {"worker.rows": 4, "worker.prefetch": 0})
        place.start()
        place.warm()
        yield place
        site.kill_all()
        assert_in_order(place.store.path)


@pytest.fixture
def place(shared_place: Place) -> Iterator[Place]:
    """The shared server, in order and idle before and after."""
    yield shared_place
    shared_place.server.wait_until_idle()
    assert_in_order(shared_place.store.path)
