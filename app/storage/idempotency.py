"""Idempotency keys: what finds the job of a request that is sent again.

A key belongs to a tenant, a method and a path. Its row is written in the operation that inserts the
job, so neither is ever without the other, and goes with the job or when its time is over. Jobs that
were submitted together have a row each, under the key and their number.
"""

from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from app.storage.encoding import micros
from app.storage.operations import Params, Rank, Statement, Step
from app.storage.readers import Readers
from app.storage.sql import insert_where
from shared.ids import JobId

_OF_KEY: Final = "tenant = :tenant AND method = :method AND path = :path AND key = :key"

_KNOWN: Final = f"SELECT job, digest FROM idempotency WHERE {_OF_KEY} AND expires_at > :now"  # noqa: S608
_NUMBERED: Final = (
    "SELECT job, digest FROM idempotency WHERE tenant = :tenant AND method = :method"
    " AND path = :path AND key BETWEEN :first AND :last AND expires_at > :now ORDER BY key"
)

_EXPIRE: Final = Statement(
    "idempotency.expire",
    Rank.IDEMPOTENCY_EXPIRE,
    f"DELETE FROM idempotency WHERE {_OF_KEY} AND expires_at <= :created_at",  # noqa: S608
    exact=False,
)

INSERT: Final = Statement(
    "idempotency.insert",
    Rank.IDEMPOTENCY_INSERT,
    insert_where(
        "idempotency",
        ("tenant", "method", "path", "key", "digest", "job", "created_at", "expires_at"),
        f"NOT EXISTS (SELECT 1 FROM idempotency WHERE {_OF_KEY})",  # noqa: S608
    ),
)
"""Void when the key names a job already."""


_DIGITS: Final = 6


class NewIdempotency(msgspec.Struct, frozen=True, kw_only=True):
    """A key and the job it is to name. ``digest`` is of the canonical body; times are aware UTC."""

    tenant: str
    method: str
    path: str
    key: str
    digest: str
    job: JobId
    created_at: datetime
    expires_at: datetime

    @property
    def subject(self) -> str:
        """What an operation that writes the key changes."""
        return f"idempotency/{self.tenant}/{self.method}/{self.path}/{self.key}"


def numbered(key: str, number: int) -> str:
    """The key of one of several jobs under one key: no key that a client can send, and next to the
    others in order."""
    return f"{key}\n{number:0{_DIGITS}d}"


class KnownKey(NamedTuple):
    """What a key stands for."""

    job: JobId
    digest: str


def idempotency_steps(new: NewIdempotency) -> list[Step]:
    """Write the key, in place of one whose time is over."""
    row: Params = {
        "tenant": new.tenant,
        "method": new.method,
        "path": new.path,
        "key": new.key,
        "digest": new.digest,
        "job": new.job,
        "created_at": micros(new.created_at),
        "expires_at": micros(new.expires_at),
    }
    return [Step(_EXPIRE, row, new.job), Step(INSERT, row, new.job)]


async def load_idempotency(
    readers: Readers, tenant: str, method: str, path: str, key: str, now: datetime
) -> KnownKey | None:
    """The job that this key names at ``now``, with the digest of the body it came with."""
    params: Params = {
        "tenant": tenant,
        "method": method,
        "path": path,
        "key": key,
        "now": micros(now),
    }
    row = await readers.row(_KNOWN, params)
    return None if row is None else KnownKey(JobId(row["job"]), row["digest"])


async def load_numbered(
    readers: Readers, tenant: str, method: str, path: str, key: str, now: datetime
) -> list[KnownKey]:
    """The jobs that were submitted together under this key, in order, as far as they are kept."""
    params: Params = {
        "tenant": tenant,
        "method": method,
        "path": path,
        "first": f"{key}\n",
        "last": f"{key}\n~",
        "now": micros(now),
    }
    return [
        KnownKey(JobId(row["job"]), row["digest"]) for row in await readers.rows(_NUMBERED, params)
    ]
