"""The application behind a real uvicorn on a free port, inside the test's own event loop."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import msgspec
import uvicorn
from litestar import Litestar
from typing_extensions import override

from app.http.application import create_app
from app.settings import ServerSettings
from tests.integration.http.doubles import FakeServices


class Stage:
    """The ports of an application that outlives a test: whatever services the test puts here."""

    services: FakeServices

    def __getattr__(self, name: str) -> Any:
        return getattr(self.services, name)


@cache
def _application(write_timeout_s: float, settings: bytes) -> tuple[Litestar, Stage]:
    # Making one takes longer than most tests here do.
    stage: Any = Stage()
    ports = FakeServices.ports(stage)
    section = msgspec.json.decode(settings, type=ServerSettings)
    return create_app(ports, section, write_timeout_s=write_timeout_s), stage


class InProcessServer(uvicorn.Server):
    """Starts and stops at once: no ticks, no pause for connections to say goodbye."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self.stop = asyncio.Event()

    @property
    def port(self) -> int:
        return self.servers[0].sockets[0].getsockname()[1]

    @override
    async def main_loop(self) -> None:
        await self.on_tick(0)
        self.up.set()
        await self.stop.wait()

    @override
    async def shutdown(self, sockets: Any = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.gather(*self.server_state.tasks, return_exceptions=True)

    def cut(self) -> None:
        """What uvicorn does with requests that outlast its grace."""
        for task in self.server_state.tasks:
            task.cancel()


@asynccontextmanager
async def serving(
    services: FakeServices, *, write_timeout_s: float = 30.0, on_port: int = 0, **settings: Any
) -> AsyncGenerator[InProcessServer]:
    app, stage = _application(write_timeout_s, msgspec.json.encode(settings))
    stage.services = services
    config = uvicorn.Config(
        app, port=on_port, http="httptools", lifespan="off", log_config=None, access_log=False
    )
    server = InProcessServer(config)
    running = asyncio.get_running_loop().create_task(server._serve())
    try:
        await server.up.wait()
        yield server
    finally:
        server.stop.set()
        await running
