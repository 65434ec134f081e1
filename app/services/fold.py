"""Frames of a worker on their way into the store, and what follows their commit."""

from datetime import datetime

import msgspec

from app.domain.events import Output, Started
from app.domain.job import Ending
from app.services.fleet import Worker
from app.services.ledger import LiveJob
from app.storage.endings import GiveBack
from app.storage.frames import FrameOperation


class Fold(msgspec.Struct, eq=False):
    """The operation being built, and what is shown once it is committed, in order.

    The operation stays lazy while its frames hold nothing but output of attached jobs; ``sealed``
    says that the worker's receipt is written with it. ``now`` is when its latest frame came.
    """

    worker: Worker
    operation: FrameOperation
    now: datetime
    sealed: bool = False
    shown: list[tuple[LiveJob, Started | Output]] = []
    endings: list[tuple[LiveJob, Ending]] = []
    returned: list[tuple[LiveJob, GiveBack]] = []
