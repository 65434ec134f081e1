"""What the services meet of the world beside the store and the clock.

The server takes what is here. A simulation gives its own, so that everything else runs in it as
shipped and the same seed does the same.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from app.dispatch.router import Router
from app.services.entropy import Entropy
from app.supervision.processes import MachineProcesses, Processes

MakeRouter: TypeAlias = Callable[[Path, Callable[[], bool]], Router]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Processes, the socket, chance.

    ``router`` makes the socket from its path and from whether what it receives cannot be stored;
    ``entropy`` gives that many random bytes, ``draw`` a number that is uniform in [0, 1).
    """

    processes: Processes = field(default_factory=MachineProcesses)
    router: MakeRouter = Router
    entropy: Callable[[int], bytes] = field(default_factory=Entropy)
    draw: Callable[[], float] = random.random
