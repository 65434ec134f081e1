"""uvicorn, with our order of stopping and a calm clock.

uvicorn by itself waits for open streams without telling them, and ticks ten times a second. Ours
tells the product first: admission closes, streams end by their own ending, and only then are
connections closed. Signals come through the loop, so that the exit code is ours.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Generator

import uvicorn
from typing_extensions import override

TICK_S = 1.0
BACKLOG = 2_048
CONNECTION_GRACE_S = 5
"""How long connections may take to flush their last bytes once every stream has ended."""

FORCED_GRACE_S = 1
"""The same when a second signal came: enough for the word that the stream was cut off."""


class Server(uvicorn.Server):
    """One HTTP server on a socket that is bound already.

    Args:
        on_started: called once connections are accepted.
        on_stop: awaited once when a stop is asked for, before connections are closed.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        on_started: Callable[[], None],
        on_stop: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._on_stop = on_stop
        self._asked = asyncio.Event()

    def request_stop(self) -> None:
        """Begin to stop; a second call waits for nobody: streams are told and cut off, and whoever
        does not take that is cut off without a word."""
        if self._asked.is_set():
            self.config.timeout_graceful_shutdown = FORCED_GRACE_S
        if self.should_exit:
            self._cut_off()
        self._asked.set()

    def _cut_off(self) -> None:
        for connection in self.server_state.connections:
            connection.transport.abort()

    @property
    def stop_requested(self) -> bool:
        """Whether a stop was asked for."""
        return self._asked.is_set()

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are the composition root's."""
        yield

    @override
    async def main_loop(self) -> None:
        """Serve until a stop is asked for and the product is ready for it."""
        self._on_started()
        ticker = asyncio.get_running_loop().create_task(self._tick())
        try:
            await self._asked.wait()
            await self._on_stop()
        finally:
            ticker.cancel()
        self.should_exit = True

    async def _tick(self) -> None:
        """uvicorn's tick keeps the Date header; ten of its ticks are one second."""
        while True:
            await self.on_tick(0)
            await asyncio.sleep(TICK_S)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        OSError: when the address is taken or not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
