"""What the engine thread lets the link thread say about it.

Written by the engine thread alone and read without a lock: every field is one word, and a heartbeat
that mixes two neighbouring moments misleads nobody.
"""

from dataclasses import dataclass
from typing import Literal

WorkerState = Literal["loading", "warming", "serving", "paused", "stopping"]


@dataclass(slots=True)
class Vitals:
    """Numbers for the heartbeat."""

    state: WorkerState = "loading"
    rows: int = 0
    pending: int = 0
    steps: int = 0
    chunk_s_max: float = 0.0
