"""What can be wrong with a request about reports, consumers and receipts."""

from typing import ClassVar

from app.domain.errors import InvalidRequest, JobServerError
from app.domain.feed import Cursor


class ConsumerNotFound(JobServerError):
    """There is no such consumer."""

    code: ClassVar[str] = "consumer_not_found"


class ConsumerExists(JobServerError):
    """There is a consumer of this name already, which reads other reports."""

    code: ClassVar[str] = "consumer_exists"


class ConsumerParked(JobServerError):
    """The consumer was parked: reports that it had not read may have been deleted."""

    code: ClassVar[str] = "consumer_parked"
    place: Cursor | None = None
    """The first report that is kept."""


class CursorMoved(JobServerError):
    """The consumer stands elsewhere than `from` says: somebody else has acknowledged."""

    code: ClassVar[str] = "cursor_moved"
    place: Cursor | None = None
    """Where it stands."""


class FeedEpochChanged(InvalidRequest):
    """The cursor is of another epoch of the feed: the store was restored since."""

    code: ClassVar[str] = "feed_epoch_changed"


class CursorAhead(InvalidRequest):
    """The cursor is ahead of the feed: no such report has been written."""

    code: ClassVar[str] = "cursor_ahead"


class LoopbackOnly(JobServerError):
    """This is answered to callers on this machine only."""

    code: ClassVar[str] = "loopback_only"


class WorkerNotFound(JobServerError):
    """There is no such worker."""

    code: ClassVar[str] = "worker_not_found"


class StopIncomplete(JobServerError):
    """The worker could not be brought to rest in time; it is as it was, and takes no new work."""

    code: ClassVar[str] = "stop_incomplete"
