"""A store whose reports are sent, and back-offs that a test can wait for."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
import structlog

from app.domain import webhook_retrying
from app.services.webhooks import senders
from app.storage.verify import verify
from tests.integration.webhooks.receiving import Receiver, receiver
from tests.integration.webhooks.sending import Sending, sending


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Nothing of the server's on the standard output of commands that run in this process."""
    structlog.configure(
        processors=[structlog.processors.JSONRenderer()],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_retrying, "FIRST_S", 0.002)
    monkeypatch.setattr(webhook_retrying, "LONGEST_S", 0.01)
    monkeypatch.setattr(senders, "AGAIN_S", 0.0)


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncGenerator[Sending]:
    """Services that send; their store is in order at the end."""
    async with sending(tmp_path / "data") as services:
        yield services
        assert await verify(services.database.readers) == []


@pytest.fixture
async def hook() -> AsyncGenerator[Receiver]:
    """A receiver that takes everything, until it is told otherwise."""
    async with receiver() as it:
        yield it
