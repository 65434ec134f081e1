"""When a delivery is tried again, and what an answer means for it and for its endpoint.

Each delivery has its own back-off. Beside it the endpoint has one: after a failure nothing is sent
for as long as the number of different events that failed in a row asks for. So one event that its
receiver cannot take holds the others up for seconds, and an endpoint that is down is asked once an
hour, whatever waits for it. The first success ends the row, and what failed in it is tried at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

import msgspec

from app.domain.webhooks import TRIES_KEPT, Delivery, DeliveryState, Try

FIRST_S: Final = 5.0
LONGEST_S: Final = 3_600.0
JITTER: Final = 0.2
"""A wait is longer or shorter by up to this part of it."""

GONE: Final = 410
_DOUBLINGS_MAX: Final = 20


class Verdict(Enum):
    """What a try came to."""

    DELIVERED = "delivered"
    FAILED = "failed"
    GONE = "gone"
    """The endpoint wants nothing more."""


def verdict(status: int | None) -> Verdict:
    """By the status; None is no answer. A redirect is a failure: it is not followed."""
    if status is None or not 200 <= status < 300:
        return Verdict.GONE if status == GONE else Verdict.FAILED
    return Verdict.DELIVERED


def wait_s(failures: int, chance: float) -> float:
    """Seconds until the next try, after so many failures. ``chance`` is from 0 to 1."""
    doubled = FIRST_S * 2.0 ** min(failures - 1, _DOUBLINGS_MAX)
    return min(doubled, LONGEST_S) * (1 + JITTER * (2 * chance - 1))


def begun(endpoint: str, event: str, seq: int, type_: str, now: datetime) -> Delivery:
    """A delivery before its first try."""
    return Delivery(
        endpoint=endpoint,
        event=event,
        seq=seq,
        type=type_,
        state=DeliveryState.WAITING,
        tries=0,
        first_at=now,
        next_at=None,
        ended_at=None,
    )


def tried(
    delivery: Delivery, attempt: Try, came: Verdict, now: datetime, left_s: float, chance: float
) -> tuple[Delivery, float]:
    """The delivery after one more try, and the seconds until the next. It is given up when it fails
    with nothing left of the time that it may take, so it is never given up without a try at the
    end of it, also when nobody was there to make others."""
    tries = delivery.tries + 1
    log = (*delivery.log, attempt)[-TRIES_KEPT:]
    told = msgspec.structs.replace(delivery, tries=tries, log=log, next_at=None)
    if came is Verdict.DELIVERED:
        return _ended(told, DeliveryState.DELIVERED, now), 0.0
    if came is Verdict.FAILED and left_s <= 0:
        return _ended(told, DeliveryState.PARKED, now), 0.0
    pause_s = wait_s(tries, chance)
    if left_s > 0:
        pause_s = min(pause_s, left_s)
    return msgspec.structs.replace(told, next_at=now + timedelta(seconds=pause_s)), pause_s


def _ended(delivery: Delivery, state: DeliveryState, now: datetime) -> Delivery:
    return msgspec.structs.replace(delivery, state=state, ended_at=now)


@dataclass(slots=True)
class Row:
    """The different events that failed at an endpoint since the last success."""

    failed: set[str] = field(default_factory=set[str])

    def failure(self, event: str, chance: Callable[[], float]) -> float:
        """One more; the seconds for which nothing is sent."""
        self.failed.add(event)
        return wait_s(len(self.failed), chance())

    def success(self) -> set[str]:
        """It takes events again. What failed while it took none is due now: nothing, when only one
        had failed, which may be at fault itself."""
        due = self.failed if len(self.failed) > 1 else set[str]()
        self.failed = set()
        return due
