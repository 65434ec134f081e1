"""What all tests share: what may not be skipped, fast arithmetic, and servers that many use."""

import os
import sys
from collections.abc import Generator, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from typing_extensions import override

from tests.e2e.server import RunningServer, Site, site_in
from worker import blas

TINY_CONTEXT_TOKENS = 256


WORKER_CACHE = Path(__file__).parents[1] / ".pytest_cache" / "worker"
"""Where workers keep their BLAS and their compiled kernels, from one run to the next."""


class _BlasBeforeMlx(MetaPathFinder):
    """Loads the optimised BLAS at the first import of MLX in this process, whoever imports it."""

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "mlx.core":
            sys.meta_path.remove(self)
            blas.load("auto", 0, WORKER_CACHE)
        return None


# Now, since conftests further down may import MLX.
sys.meta_path.insert(0, _BlasBeforeMlx())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of the default model one after the other in one process, however many run beside
    them: they load the same weights and compute the same references. And first, since together they
    take as long as all the others."""
    for item in items:
        if item.get_closest_marker("model"):
            item.add_marker(pytest.mark.xdist_group("default-model"))
    items.sort(key=lambda item: item.get_closest_marker("model") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test of the default model that is skipped has failed, where the model is required."""
    report = yield
    required = os.environ.get("MLXQ_REQUIRE_MODEL") == "1"
    if report.skipped and required and item.get_closest_marker("model"):
        report.outcome = "failed"
        report.longrepr = f"MLXQ_REQUIRE_MODEL=1 and skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def worker_cache() -> Path:
    """What ``WORKER_CACHE`` says."""
    return WORKER_CACHE


@pytest.fixture
def site(tmp_path: Path, worker_cache: Path) -> Iterator[Site]:
    """A data directory of the test's own."""
    with site_in(tmp_path, worker_cache) as place:
        yield place


@pytest.fixture(scope="session")
def scripted(
    tmp_path_factory: pytest.TempPathFactory, worker_cache: Path
) -> Iterator[RunningServer]:
    """A server with the scripted engine, for tests that leave it as it was."""
    with site_in(tmp_path_factory.mktemp("scripted"), worker_cache) as place:
        yield place.start(settings={"server.body_bytes_max": 65_536})


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, worker_cache: Path) -> Iterator[RunningServer]:
    """A server with real MLX and a tiny model, for tests that leave it as it was."""
    from tests.models import make_tiny_llama

    with site_in(tmp_path_factory.mktemp("tiny"), worker_cache) as place:
        make_tiny_llama(place.data_dir / "models" / "tiny", context_tokens=TINY_CONTEXT_TOKENS)
        yield place.start(engine="mlx", model="tiny")
