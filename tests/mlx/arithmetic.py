"""Puts the optimised BLAS in place when imported, which must be before MLX is: as in a worker."""

import sys
from typing import Final

import platformdirs

from worker import blas

MLX_WAS_IMPORTED_BEFORE: Final = "mlx.core" in sys.modules

if not MLX_WAS_IMPORTED_BEFORE:
    blas.load("auto", 0, platformdirs.user_cache_path("mlxq", appauthor=False) / "tests")
