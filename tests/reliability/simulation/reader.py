"""A consumer of reports, as a program would be one: reads, does its work, acknowledges."""

import asyncio
from collections import Counter
from typing import Any, Final

from app.domain.errors import JobServerError
from app.domain.feed import Cursor, Selection
from app.domain.job import JobClass
from app.product import Product
from app.storage.errors import StoreError
from tests.reliability.simulation.machine import Machine, Parent

NAME: Final = "reader"
POLL_S: Final = 4.0
PAGE: Final = 5
SELECTION: Final = Selection(classes=tuple(JobClass), include_attached=True)


class ReportReader:
    """Its work and its place are one transaction of its own: ``done`` and ``through`` move
    together, so that what is read twice is done once."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.done: Counter[tuple[str, int]] = Counter()
        self.through = 0
        self._last = -1
        self.at_end = False
        self._asked = self._made = False

    def parent_up(self, parent: Parent) -> None:
        """A new parent serves."""
        parent.spawn(self._read(parent))

    def read_all(self, machine: Machine) -> bool:
        """Whether it has come to the end since all work ended."""
        if self._machine is machine and not self._asked:
            self.at_end, self._asked = False, True
        return self.at_end

    def assert_each_once(self) -> None:
        """Nothing was done twice."""
        twice = [key for key, count in self.done.items() if count != 1]
        assert twice == [], twice

    async def _read(self, parent: Parent) -> None:
        assert parent.product is not None
        while True:
            try:
                await self._page(parent.product)
            except (JobServerError, StoreError) as error:
                self._machine.world.note("reader", type(error).__name__)
            await asyncio.sleep(POLL_S)

    async def _page(self, product: Product) -> None:
        consumers = product.reporting.consumers
        if not self._made:
            await consumers.create(NAME, SELECTION, "earliest")
            self._made = True
        _, page = await consumers.page(NAME, None, PAGE)
        for report in page.reports:
            self._do(report)
        if page.reports:
            through = Cursor(product.reporting.feed.epoch, page.reports[-1].seq)
            await consumers.ack(NAME, None, through, None)
        self.at_end = page.end and not page.reports

    def _do(self, report: Any) -> None:
        if report.seq <= self.through:
            return
        self.through = report.seq
        self.done[report.id, report.revision] += 1
