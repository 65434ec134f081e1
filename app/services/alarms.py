"""Any number of alarms on one timer of the event loop.

A timer of the loop for each of a hundred thousand waiting jobs costs more than recording them, and
one that is not cancelled keeps its job in memory until it fires, a week after the job's end.
"""

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from app.services.clock import not_before

SLACK: Final = 64
"""Cancelled alarms that may stay in the heap, beside as many as there are others."""


class Alarms:
    """Calls what was set once its time has come, on the loop's monotonic clock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._calls: dict[int, Callable[[], None]] = {}
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def waiting(self) -> int:
        """Entries in the heap, those of cancelled alarms included."""
        return len(self._heap)

    def set(self, wait_s: float, call: Callable[[], None]) -> int:
        """Call this once ``wait_s`` have passed; returns the number to cancel it by."""
        number = self._next
        self._next += 1
        due = asyncio.get_running_loop().time() + not_before(wait_s)
        self._calls[number] = call
        first = not self._heap or due < self._heap[0][0]
        heappush(self._heap, (due, number))
        if first:
            self._arm()
        return number

    def cancel(self, number: int) -> None:
        """Forget an alarm; one that has rung or was cancelled is nothing."""
        self._calls.pop(number, None)
        if len(self._heap) > 2 * len(self._calls) + SLACK:
            self._heap = [entry for entry in self._heap if entry[1] in self._calls]
            heapify(self._heap)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._heap and self._heap[0][1] not in self._calls:
            heappop(self._heap)
        if self._heap:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._heap[0][0], self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        due: list[Callable[[], None]] = []
        while self._heap and self._heap[0][0] <= now:
            call = self._calls.pop(heappop(self._heap)[1], None)
            if call is not None:
                due.append(call)
        self._arm()
        for call in due:
            call()
