"""The event loop that the server runs on in production."""

import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest
import structlog
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def plain_logs() -> None:
    """Without the default's pictures of stacks, which take half a second each."""
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )


@pytest.fixture(autouse=True)
def expected_complaints(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """No exception and no unfinished answer of ours reaches the server but those named in here."""
    expected: list[str] = []
    yield expected
    complaints = [
        record.getMessage().strip()
        for record in caplog.get_records("call")
        if record.name.startswith("uvicorn") and record.levelno >= logging.ERROR
    ]
    assert complaints == expected
