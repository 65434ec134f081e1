"""A store in which much has happened, all of it right: made once, copied for each test."""

import asyncio
import shutil
from pathlib import Path

import pytest

from app.storage.database import DATABASE_NAME
from tests.integration.storage.verify.history import make_history


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its file, closed."""
    directory = tmp_path_factory.mktemp("history") / "data"
    asyncio.run(make_history(directory))
    return directory / DATABASE_NAME


@pytest.fixture
def store(history: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(history, tmp_path / DATABASE_NAME))
