"""Places in rough weather: one server a test, with what goes wrong in it."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typing_extensions import override

from tests.durable.order import assert_in_order
from tests.durable.place import Place
from tests.e2e.server import RunningServer, Site


class RoughPlace(Place):
    """A place whose server has the orders of ``unkind``; ``{data}`` in one is its directory."""

    @override
    def start(self, *sabotage: str) -> RunningServer:
        """Start a server with these orders."""
        orders = [order.replace("{data}", str(self.site.data_dir)) for order in sabotage]
        program = ("-m", "tests.rough.unkind", json.dumps(orders))
        self.server = self.site.start(
            self.script, self.settings, engine=self.engine, model=self.model, program=program
        )
        self.up.set()
        return self.server


Begin = Callable[..., RoughPlace]


@pytest.fixture
def begin(site: Site) -> Iterator[Begin]:
    """Makes the test's place and starts its server."""
    places: list[RoughPlace] = []

    def started(*orders: str, script: Any = None, settings: Any = None) -> RoughPlace:
        place = RoughPlace(site, script, settings)
        places.append(place)
        place.start(*orders)
        return place

    yield started
    site.kill_all()
    for place in places:
        assert_in_order(place.store.path)
