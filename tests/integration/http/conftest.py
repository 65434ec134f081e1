"""The event loop that the server runs on in production."""

import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def nothing_escapes(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No exception and no unfinished answer of ours ever reaches the server."""
    yield
    complaints = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.name.startswith("uvicorn") and record.levelno >= logging.ERROR
    ]
    assert complaints == []
