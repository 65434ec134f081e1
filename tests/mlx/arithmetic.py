"""Puts the optimised BLAS in place when imported, which must be before MLX is: as in a worker."""

import sys

import platformdirs

from worker import blas

if "mlx.core" not in sys.modules:
    blas.load("auto", 0, platformdirs.user_cache_path("mlxq", appauthor=False) / "tests")
