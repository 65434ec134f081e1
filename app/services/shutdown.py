"""Stopping in order: admission closes, attached work finishes within the grace, the rest is told.

Whoever is still streaming when the grace ends gets an in-band error, never a silent cut. Workers
stop after their jobs, and the store closes last.
"""

import asyncio

import structlog

from app.domain.job import StopReason
from app.services.cancellation import Cancellation
from app.services.ledger import Ledger
from app.services.submission import Submission

CANCEL_GRACE_S = 5.0
"""How long workers may take to confirm that the rows left over are stopped."""

CHECK_S = 0.02
_log = structlog.get_logger("shutdown")


class Shutdown:
    """Ends attached work.

    Args:
        grace_s: how long open jobs may go on.
    """

    def __init__(
        self, submission: Submission, ledger: Ledger, cancellation: Cancellation, grace_s: float
    ) -> None:
        self._submission = submission
        self._ledger = ledger
        self._cancellation = cancellation
        self._grace_s = grace_s
        self._forced = asyncio.Event()

    def force(self) -> None:
        """Wait for nothing any more."""
        self._forced.set()

    @property
    def forced(self) -> bool:
        """Whether a second signal came."""
        return self._forced.is_set()

    async def finish_jobs(self) -> None:
        """Close admission and return when no job is open, or none will listen."""
        self._submission.close()
        _log.info("stopping", open_jobs=len(self._ledger), grace_s=self._grace_s)
        if await self._ended_within(self._grace_s):
            return
        for live in self._ledger:
            self._cancellation.request_nowait(live.id, StopReason.PARENT_LOST)
        if not await self._ended_within(CANCEL_GRACE_S):
            _log.warning("jobs_left_over", open_jobs=len(self._ledger))

    async def _ended_within(self, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while len(self._ledger):
            if self._forced.is_set() or loop.time() >= until:
                return False
            await asyncio.sleep(CHECK_S)
        return True
