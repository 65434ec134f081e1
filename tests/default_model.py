"""Where the default model lies, for the tests that need it (marked `model`)."""

import os
from pathlib import Path

import pytest

from app.catalogue.entries import Catalogue
from app.settings import DEFAULT_MODEL, Settings


def default_model_path() -> Path:
    """The model's directory. Skips the test when it is absent; MLXQ_REQUIRE_MODEL=1: fails it."""
    entry = Catalogue.of(Settings()).find(DEFAULT_MODEL)
    if entry is not None:
        return entry.path
    reason = f"{DEFAULT_MODEL} is not on this machine; `make model` fetches it"
    if os.environ.get("MLXQ_REQUIRE_MODEL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
