"""A tiny model, the default model where it is on disk, and an engine over either."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.launch import EngineSettings
from tests.default_model import default_model_path
from tests.models import make_tiny_llama
from worker.engine.mlx_engine import MlxEngine

OpenMlx = Callable[..., MlxEngine]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def default_model() -> Path:
    """`MLXQ_TEST_MODEL`, or the default model of the catalogue."""
    named = os.environ.get("MLXQ_TEST_MODEL")
    return Path(named) if named else default_model_path()


@pytest.fixture
def open_mlx() -> Iterator[OpenMlx]:
    """Makes and loads an engine; ``changes`` go into its settings."""
    opened: list[MlxEngine] = []

    def make(path: Path, **changes: Any) -> MlxEngine:
        engine = MlxEngine(EngineSettings(model_path=str(path), **changes))
        engine.load(lambda _done, _total: None)
        opened.append(engine)
        return engine

    yield make
    for engine in opened:
        engine.close()
