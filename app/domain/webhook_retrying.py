"""When a delivery is tried again, and what an answer means for it and for its endpoint.

Each delivery has its own back-off. Beside it the endpoint has one, once a second event has failed
without a success between: then nothing is sent for as long as the number of different events that
failed in a row asks for. So one event that its receiver cannot take holds up no other, and an
endpoint that is down is asked once an hour, whatever waits for it. The first success ends the row,
and what failed in it is tried at once. A receiver that says when to come again (``Retry-After``) is
left alone for so long.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

import msgspec

from app.domain.webhooks import TRIES_KEPT, Delivery, DeliveryState, Try

FIRST_S: Final = 5.0
LONGEST_S: Final = 3_600.0
"""Also the longest time that a receiver may ask for."""

JITTER: Final = 0.2
"""A wait is longer or shorter by up to this part of it."""

GONE: Final = 410
_DOUBLINGS_MAX: Final = 20
_DIGITS_MAX: Final = 12


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


def asked_for_s(retry_after: str | None, now: datetime) -> float:
    """How long a receiver wants to be left alone: seconds, or a date (RFC 9110, 10.2.3). What is
    neither asks for nothing."""
    if retry_after is None:
        return 0.0
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:_DIGITS_MAX]), LONGEST_S)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return min(max((until - now).total_seconds(), 0.0), LONGEST_S)


def tried(
    delivery: Delivery,
    attempt: Try,
    came: Verdict,
    now: datetime,
    left_s: float,
    chance: float,
    asked_s: float = 0.0,
) -> tuple[Delivery, float]:
    """The delivery after one more try, and the seconds until the next, not before those that were
    asked for. It is given up when it fails
    with nothing left of the time that it may take, so it is never given up without a try at the
    end of it, also when nobody was there to make others."""
    tries = delivery.tries + 1
    log = (*delivery.log, attempt)[-TRIES_KEPT:]
    told = msgspec.structs.replace(delivery, tries=tries, log=log, next_at=None)
    if came is Verdict.DELIVERED:
        return _ended(told, DeliveryState.DELIVERED, now), 0.0
    if came is Verdict.FAILED and left_s <= 0:
        return _ended(told, DeliveryState.PARKED, now), 0.0
    pause_s = max(wait_s(tries, chance), asked_s)
    if left_s > 0:
        pause_s = min(pause_s, left_s)
    return msgspec.structs.replace(told, next_at=now + timedelta(seconds=pause_s)), pause_s


def _ended(delivery: Delivery, state: DeliveryState, now: datetime) -> Delivery:
    return msgspec.structs.replace(delivery, state=state, ended_at=now)


@dataclass(slots=True)
class Row:
    """The different events that failed at an endpoint since the last success."""

    failed: set[str] = field(default_factory=set[str])

    def failure(self, event: str, chance: Callable[[], float], asked_s: float = 0.0) -> float:
        """One more; the seconds for which nothing is sent, not less than what was asked for."""
        self.failed.add(event)
        others = len(self.failed) - 1
        return max(wait_s(others, chance()) if others else 0.0, asked_s)

    def success(self) -> set[str]:
        """It takes events again. What failed while it took none is due now: nothing, when only one
        had failed, which may be at fault itself."""
        due = self.failed if len(self.failed) > 1 else set[str]()
        self.failed = set()
        return due
