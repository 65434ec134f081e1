"""Stopping in order: admission closes, work is settled, and nobody is cut off without a word.

A stop is a drain: stored and durable rows are checkpointed, attached work finishes within the
grace. Whoever is still streaming when the grace ends gets an in-band error. Workers stop after
their jobs, and the store closes last. A second signal ends the grace.
"""

import asyncio

import structlog

from app.services.draining import SETTLE_S, Draining
from app.services.submission import Submission

UNRECORDED_S = 5.0
"""How much longer than a drain takes its record is waited for: on a full disk it never comes."""

FORCED_S = 2.0
"""How long the endings of what a second signal cuts off are waited for; what is not recorded by
then the next start records."""

_log = structlog.get_logger("shutdown")


class Shutdown:
    """Settles all work before the server stops.

    Args:
        grace_s: how long attached jobs may go on.
    """

    def __init__(self, submission: Submission, draining: Draining, grace_s: float) -> None:
        self._submission = submission
        self._draining = draining
        self._grace_s = grace_s
        self._forced = asyncio.Event()

    def force(self) -> None:
        """Cut off whatever still runs."""
        self._forced.set()

    @property
    def forced(self) -> bool:
        """Whether a second signal came."""
        return self._forced.is_set()

    async def settle(self) -> None:
        """Close admission and return when nothing is in flight, a second signal came, or neither
        can be recorded: a stop does not wait for a disk that is full."""
        self._submission.close()
        _log.info("stopping", grace_s=self._grace_s)
        drain = await self._draining.start("checkpoint", self._grace_s, keep_attached=True)
        settled = asyncio.ensure_future(self._draining.finish(drain))
        forced = asyncio.ensure_future(self._forced.wait())
        await asyncio.wait(
            (settled, forced),
            timeout=self._grace_s + SETTLE_S + UNRECORDED_S,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if self.forced:
            await self._draining.start("checkpoint", 0.0, keep_attached=True)
            await asyncio.wait((settled,), timeout=FORCED_S)
        settled.cancel()
        forced.cancel()
