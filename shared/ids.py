"""Identifiers, and how they are minted.

A minted id is a prefix and 32 hexadecimal digits: 48 bits of Unix milliseconds, then 80 random
bits. Ids of one mint only ever grow, also when the clock is set back, so they sort by creation in
logs, cursors and primary keys alike.
"""

from collections.abc import Callable
from hashlib import sha1
from typing import Final, NewType
from uuid import UUID

JobId = NewType("JobId", str)
GenerationId = NewType("GenerationId", str)
"""One start of one worker process. Minted by the parent before the spawn."""
CommandId = NewType("CommandId", int)
"""A row of the outbox towards workers; grows, never reused inside a store."""
ReportId = NewType("ReportId", str)
StoreId = NewType("StoreId", str)
DrainId = NewType("DrainId", str)
ScheduleId = NewType("ScheduleId", str)

_RANDOM_BITS: Final = 80
_RANDOM_BYTES: Final = _RANDOM_BITS // 8
_VARIANTS: Final = {digit: f"{int(digit, 16) & 3 | 8:x}" for digit in "0123456789abcdef"}
_REPORT_NAMESPACE: Final = UUID("6f1d3c0e-6d1c-5f0a-9a57-3b9f0a6c2d11").bytes


class IdMint:
    """Mints ids that sort by time and never go back.

    Args:
        now_ms: Unix time in milliseconds.
        entropy: returns that many random bytes.
        last: the highest body (32 hex digits) already used in this store, so that a restart under a
            clock that was set back still mints higher ids.
    """

    __slots__ = ("_entropy", "_last", "_now_ms")

    def __init__(
        self, now_ms: Callable[[], int], entropy: Callable[[int], bytes], last: str | None = None
    ) -> None:
        self._now_ms = now_ms
        self._entropy = entropy
        self._last = int(last, 16) if last else 0

    def job(self) -> JobId:
        """A new ``job_…`` id."""
        return JobId(f"job_{self._body()}")

    def jobs(self, count: int) -> list[JobId]:
        """New ``job_…`` ids, in order, with one look at the clock for all of them."""
        now_ms = self._now_ms()
        return [
            JobId(f"job_{self._after(now_ms, self._entropy(_RANDOM_BYTES))}") for _ in range(count)
        ]

    def generation(self) -> GenerationId:
        """A new ``gen_…`` id."""
        return GenerationId(f"gen_{self._body()}")

    def drain(self) -> DrainId:
        """A new ``drain_…`` id."""
        return DrainId(f"drain_{self._body()}")

    def schedule(self) -> ScheduleId:
        """A new ``sched_…`` id."""
        return ScheduleId(f"sched_{self._body()}")

    def endpoint(self) -> str:
        """A new ``we_…`` id, of a webhook endpoint."""
        return f"we_{self._body()}"

    def request(self) -> str:
        """A new ``req_…`` id, for the request id header and the log."""
        return f"req_{self._body()}"

    def _body(self) -> str:
        return self._after(self._now_ms(), self._entropy(_RANDOM_BYTES))

    def _after(self, now_ms: int, entropy: bytes) -> str:
        random = int.from_bytes(entropy, "big")
        fresh = (now_ms << _RANDOM_BITS) | random
        if fresh <= self._last:
            fresh = self._last + 1 + (random >> 40)
        self._last = fresh
        return f"{fresh:032x}"


def id_body(identifier: str) -> str:
    """The part of a minted id after its prefix, from which public ids are derived."""
    return identifier.rpartition("_")[2]


def report_id(kind: str, subject: str) -> ReportId:
    """The id of the one report about ``subject``: derived, so that no retry makes a second one.

    ``kind`` is one of ``job``, ``generation``, ``drain``; never an outcome. A UUID of version 5
    (RFC 9562, 5.5) in a namespace of our own, spelled out: one is made for every job that ends.
    """
    name = f"{kind}:{subject}".encode()
    digest = sha1(_REPORT_NAMESPACE + name, usedforsecurity=False).hexdigest()
    return ReportId(
        f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{_VARIANTS[digest[16]]}{digest[17:20]}"
        f"-{digest[20:32]}"
    )
