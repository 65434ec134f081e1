"""An asyncio event loop without I/O, on the world's clock: shipped services run on it as they are.

It is never run by itself. The world asks when it next has something to do and runs one callback at
a time, so a parent can be stopped, or die, between any two.
"""

import asyncio
from asyncio import events
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop
from typing import Any

from typing_extensions import override

from tests.reliability.simulation.world import World


class VirtualLoop(asyncio.BaseEventLoop):
    """``failures`` are exceptions that nobody caught: there must be none."""

    _ready: Any
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._readers: dict[int, Callable[[], object]] = {}
        self.failures: list[str] = []
        self.set_exception_handler(self._failed)

    @override
    def time(self) -> float:
        return self._world.now

    @override
    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    @override
    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future

    @override
    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        self._readers[fd] = lambda: callback(*args)

    @override
    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def readable(self, fd: int) -> None:
        """There is something new on this descriptor."""
        if fd in self._readers:
            self.call_soon(self._readers[fd])

    def due(self) -> float | None:
        """When the loop next has something to do."""
        if self._ready:
            return self._world.now
        scheduled = self._scheduled
        while scheduled and scheduled[0].cancelled():
            heappop(scheduled)._scheduled = False
        return scheduled[0].when() if scheduled else None

    def run_one(self) -> None:
        """Run the next callback that is due."""
        self._move_due()
        handle = self._ready.popleft()
        if handle.cancelled():
            return
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(None)

    def bury(self) -> None:
        """End what is left of its tasks; nothing of that has any effect."""
        self.set_exception_handler(lambda _loop, _context: None)
        events._set_running_loop(self)
        try:
            for task in asyncio.all_tasks(self):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()
        finally:
            events._set_running_loop(None)
        self._ready.clear()
        self._scheduled.clear()
        self.close()

    def _move_due(self) -> None:
        scheduled, now = self._scheduled, self._world.now
        while scheduled and scheduled[0].when() <= now:
            handle = heappop(scheduled)
            handle._scheduled = False
            self._ready.append(handle)

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")
