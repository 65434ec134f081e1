"""Noticing that the client went away, at once, whatever the handler waits for.

A server tells an ASGI application so only through ``receive``; without someone waiting there, a
handler runs to its end for nobody. ``Connection`` waits there beside the handler and cancels it.
It works like ``asyncio.timeout``: the cancellation it caused leaves as ``ClientGone``, one that
came from elsewhere passes through.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

Receive = Callable[[], Awaitable[Any]]


class ClientGone(Exception):
    """The client closed its connection, or stopped reading from it."""


class Connection:
    """An async context whose body is interrupted when the request's connection ends.

    To be entered after the body was read: what still comes from the client is discarded. ``gone``
    says whether the interruption was ours.

    Raises:
        ClientGone: out of the context, in the place of the cancellation.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.gone = False

    async def __aenter__(self) -> Self:
        self._task = _current_task()
        self._cancelling = self._task.cancelling()
        self._watcher = asyncio.get_running_loop().create_task(self._watch())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._watcher.cancel()
        if not self.gone:
            return
        ours = self._task.uncancel() <= self._cancelling
        if ours and exc_type is asyncio.CancelledError:
            raise ClientGone from exc

    def interrupt(self) -> None:
        """End the body as if the client had gone. Once only."""
        if not self.gone:
            self.gone = True
            self._task.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.interrupt()


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None, "a Connection needs a task to interrupt"  # noqa: S101
    return task
