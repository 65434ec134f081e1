"""What the engine thread is told by the other threads, all through one queue.

The queue carries lists, since one hand-over for many messages costs a fraction of many. It is a
``SimpleQueue`` because a signal handler must be able to put into it at any point. Its bound is kept
by the session, which takes no command while ``INBOX_LISTS_MAX`` lists wait; everything else in it
is bounded by the jobs held.
"""

from collections.abc import Sequence
from queue import SimpleQueue
from typing import Final

import msgspec

from shared.failures import Failure
from shared.ids import JobId
from shared.messages import Cancel, Exit, Preempt, RunJob, Seal

INBOX_LISTS_MAX: Final = 1_024


class Prepared(msgspec.Struct, frozen=True):
    """The prompt of this attempt as token ids, with their digest."""

    job: JobId
    attempt: int
    tokens: list[int]
    digest: str


class NotPrepared(msgspec.Struct, frozen=True):
    """The prompt could not be made; the job can never run like this."""

    job: JobId
    attempt: int
    failure: Failure


class Orphaned(msgspec.Struct, frozen=True):
    """No parent was heard for the whole grace."""


class Terminated(msgspec.Struct, frozen=True):
    """SIGTERM came."""


class Resumed(msgspec.Struct, frozen=True):
    """There is room for frames again."""


Command = RunJob | Cancel | Preempt | Seal | Exit
"""What the session lets through from the parent."""

ToLoop = Command | Prepared | NotPrepared | Orphaned | Terminated | Resumed

Inbox = SimpleQueue[Sequence[ToLoop]]
