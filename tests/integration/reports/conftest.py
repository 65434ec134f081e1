"""An empty store, open, with what reads its feed."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
import structlog

from tests.integration.reports.reading import Reading, reading


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Reading]:
    async with reading(tmp_path / "data") as services:
        yield services


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Nothing of the server's on the standard output of commands that run in this process."""
    structlog.configure(
        processors=[structlog.processors.JSONRenderer()],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    yield
    structlog.reset_defaults()
