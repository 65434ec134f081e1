"""How far the stop of a worker has come."""

import asyncio
from dataclasses import dataclass, field

from shared.ids import CommandId


@dataclass(slots=True, eq=False)
class Stop:
    """One worker's. ``closed`` once it is committed that it gets no more work, ``command`` what it
    was asked to seal by, ``sealed`` once its receipt is committed; ``changed`` wakes who waits."""

    closed: bool = False
    command: CommandId | None = None
    sealed: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
