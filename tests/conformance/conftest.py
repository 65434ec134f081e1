"""The engines that the suite runs over."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.launch import EngineSettings
from tests.conformance.driving import Driver
from worker.engine.engine import Engine, EngineInfo

ROWS = 4
CHUNK_TOKENS = 16

OpenEngine = Callable[..., tuple[Engine, EngineInfo]]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.models import make_tiny_llama

    return make_tiny_llama(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(params=["scripted", "mlx"])
def open_engine(request: pytest.FixtureRequest) -> Iterator[OpenEngine]:
    """Makes and loads an engine; ``changes`` go into its settings."""
    opened: list[Engine] = []
    kind: str = request.param
    path = request.getfixturevalue("tiny_model") if kind == "mlx" else Path("scripted")

    def make(
        on_progress: Callable[[int, int], None] = _ignore, **changes: Any
    ) -> tuple[Engine, EngineInfo]:
        options = {"rows": ROWS, "prefill_chunk_tokens": CHUNK_TOKENS} | changes
        engine = _new(EngineSettings(engine=kind, model_path=str(path), **options))  # pyright: ignore[reportArgumentType]
        opened.append(engine)
        return engine, engine.load(on_progress)

    yield make
    for engine in opened:
        engine.close()


def _ignore(done: int, total: int) -> None:
    """Progress that nobody wants to hear."""


def _new(settings: EngineSettings) -> Engine:
    if settings.engine == "mlx":
        from worker.engine.mlx_engine import MlxEngine

        return MlxEngine(settings)
    from worker.engine.scripted_engine import ScriptedEngine

    return ScriptedEngine(settings)


@pytest.fixture
def engine(open_engine: OpenEngine) -> Engine:
    return open_engine()[0]


@pytest.fixture
def driver(engine: Engine) -> Driver:
    return Driver(engine)
