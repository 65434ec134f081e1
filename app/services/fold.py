"""Frames of a worker on their way into the store, and what follows their commit."""

from dataclasses import dataclass, field

from app.domain.events import Output, Started
from app.domain.job import Ending
from app.services.fleet import Worker
from app.services.ledger import LiveJob
from app.storage.endings import GiveBack
from app.storage.frames import FrameOperation


@dataclass(slots=True)
class Fold:
    """The operation being built, and what is shown once it is committed, in order.

    The operation stays lazy while its frames hold nothing but output of attached jobs; ``sealed``
    says that the worker's receipt is written with it.
    """

    worker: Worker
    operation: FrameOperation
    sealed: bool = False
    shown: list[tuple[LiveJob, Started | Output]] = field(
        default_factory=list[tuple[LiveJob, Started | Output]]
    )
    endings: list[tuple[LiveJob, Ending]] = field(default_factory=list[tuple[LiveJob, Ending]])
    returned: list[tuple[LiveJob, GiveBack]] = field(default_factory=list[tuple[LiveJob, GiveBack]])
