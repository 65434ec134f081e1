"""A store that is migrated once and copied for each test."""

import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from app.storage import schema
from app.storage.connections import create_file, writer_connection
from app.storage.database import DATABASE_NAME, Database
from tests.integration.storage.making import NOW, opened


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store's file at the latest schema."""
    path = tmp_path_factory.mktemp("template") / DATABASE_NAME
    create_file(path)
    driver = writer_connection(path)
    schema.migrate(driver, path, NOW)
    driver.close()
    return path


@pytest.fixture
def data_dir(tmp_path: Path, migrated: Path) -> Path:
    """A data directory with an empty store."""
    directory = tmp_path / "data"
    directory.mkdir(mode=0o700)
    shutil.copy(migrated, directory / DATABASE_NAME)
    return directory


@pytest.fixture
async def database(data_dir: Path) -> AsyncGenerator[Database]:
    """That store, open."""
    async with opened(data_dir) as store:
        yield store
