"""An empty store, open, with what reads its feed."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.integration.reports.reading import Reading, reading


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Reading]:
    async with reading(tmp_path / "data") as services:
        yield services
