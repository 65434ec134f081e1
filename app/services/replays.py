"""Idempotency keys: the same key and body find the job that was submitted first.

A key belongs to a tenant, a method and a path. It is written with the job it names, so there is
never one without the other; another body under the same key is refused.
"""

from app.domain.draft import IdempotencyKey
from app.domain.errors import IdempotencyConflict
from app.services.clock import Clock
from app.services.following import Following, Ticket
from app.storage.database import Database
from app.storage.idempotency import load_idempotency, load_numbered
from app.storage.reading import load_job
from shared.ids import JobId


class Replays:
    """Finds jobs again by key."""

    def __init__(self, database: Database, following: Following, clock: Clock) -> None:
        self._readers = database.readers
        self._following = following
        self._clock = clock

    async def find(self, tenant: str, key: IdempotencyKey) -> Ticket | None:
        """The job of this key, followed from its start; None when the key is free.

        Raises:
            IdempotencyConflict: the key was used with another body.
        """
        known = await load_idempotency(
            self._readers, tenant, key.method, key.path, key.key, self._clock.now()
        )
        if known is None:
            return None
        job_id, digest = known
        if digest != key.digest:
            raise IdempotencyConflict
        row = await load_job(self._readers, job_id)
        if row is None:
            return None
        follower = await self._following.follow(job_id, tenant, 0)
        return Ticket(job_id, row.new.created_at, row.new.model, follower, replayed=True)

    async def find_many(self, tenant: str, key: IdempotencyKey) -> list[JobId]:
        """The jobs that were submitted together under this key, in order; none when it is free.

        Raises:
            IdempotencyConflict: the key was used with another body.
        """
        known = await load_numbered(
            self._readers, tenant, key.method, key.path, key.key, self._clock.now()
        )
        if any(one.digest != key.digest for one in known):
            raise IdempotencyConflict
        return [one.job for one in known]
