"""How long a job waits before it is tried again. Pure: the caller gives the random number."""

from typing import Final

BACKOFF_FIRST_S: Final = 1.0
BACKOFF_MAX_S: Final = 60.0
MAX_LOSSES: Final = 1_000
"""Worker losses after which a job fails ``too_many_losses``: a bound, far above bad luck."""


def backoff_s(failures: int, draw: float) -> float:
    """Seconds before the try after ``failures`` failures (from 1): 1, 2, 4 … 60, of which
    ``draw`` (uniform in [0, 1)) takes off up to a half, so that a crowd does not come back at once.
    """
    full = min(BACKOFF_FIRST_S * 2.0 ** max(0, failures - 1), BACKOFF_MAX_S)
    return full * (1.0 - draw / 2.0)
