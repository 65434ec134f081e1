"""Measured figures, for whoever runs the tests with ``-rP``."""

import sys


def tell(what: str, figure: float, unit: str) -> None:
    """Write a figure to the test's captured output."""
    sys.stderr.write(f"{what}: {figure:.4g} {unit}\n")
