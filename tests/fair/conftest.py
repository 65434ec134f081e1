"""Servers for the tests of who goes first, and of who pays for a dead worker."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.durable.order import assert_in_order
from tests.durable.place import Place
from tests.e2e.server import Site

NewPlace = Callable[..., Place]


@pytest.fixture
def new_place(site: Site) -> Iterator[NewPlace]:
    """Starts the test's server, with a worker ready."""
    places: list[Place] = []

    def make(script: dict[str, Any], settings: dict[str, Any], **kwargs: str) -> Place:
        place = Place(site, script, settings, **kwargs)
        place.settings = dict(settings)
        place.start()
        if place.engine == "scripted":
            place.warm()
        places.append(place)
        return place

    yield make
    site.kill_all()
    for place in places:
        assert_in_order(place.store.path)
