"""What the doors of receipts need from the services."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from app.domain.receipts import Rank
from shared.ids import ReportId


class Counts(Protocol):
    """Tokens of a generation."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...
    @property
    def reasoning_tokens(self) -> int: ...


class ReceiptReport(Protocol):
    """What a receipt says."""

    @property
    def outcome(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def detail(self) -> str | None: ...
    @property
    def complete(self) -> bool: ...
    @property
    def usage(self) -> Counts: ...
    @property
    def model(self) -> str: ...
    @property
    def jobs(self) -> int: ...
    @property
    def ready_at(self) -> datetime | None: ...
    @property
    def ended_at(self) -> datetime: ...


class Receipt(Protocol):
    """The latest receipt of a generation."""

    @property
    def id(self) -> ReportId: ...
    @property
    def generation(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def rank(self) -> Rank: ...
    @property
    def report(self) -> ReceiptReport | None: ...


class Acked(Protocol):
    """What became of an acknowledgement."""

    @property
    def id(self) -> ReportId: ...
    @property
    def revision(self) -> int: ...
    @property
    def state(self) -> str: ...


class Accounting(Protocol):
    """Stops and their receipts."""

    async def prepare_stop(
        self, name: str | None, drain_s: float, abort_s: float, /, *, force: bool
    ) -> Receipt:
        """The worker's receipt, once it is durable.

        Raises:
            WorkerNotFound: there is none.
            InvalidRequest: there are several, and none is named.
            StopIncomplete: it did not come to rest.
        """
        ...

    async def pending(self, limit: int, /) -> Sequence[Receipt]:
        """Receipts that were not acknowledged, oldest first."""
        ...

    async def ack(self, receipt_id: ReportId, revision: int | None, /) -> Acked:
        """This revision is booked; the latest, if none is named."""
        ...
