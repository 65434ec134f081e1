"""Tests in this process compute with the matrix library that workers compute with."""

import sys
from pathlib import Path

import mlx.core as mx
import pytest

from worker.blas import COPY


@pytest.mark.skipif(sys.platform != "linux", reason="the Mac has Accelerate")
def test_mlx_was_imported_behind_the_optimised_blas(worker_cache: Path) -> None:
    assert mx.default_device() is not None
    mapped = Path("/proc/self/maps").read_text()
    assert str(worker_cache / "blas") in mapped
    assert mapped.count(COPY) == mapped.count(f"{worker_cache}/blas")
