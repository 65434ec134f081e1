"""How values look in the database.

Times are whole microseconds since 1970 in UTC. Seeds are unsigned 64-bit outside and two's
complement inside, since SQLite's integers are signed: a seed from 2**63 up is a negative number in
the table. Payloads that must survive a flipped bit carry a CRC-32 beside them.
"""

from datetime import UTC, datetime, timedelta
from typing import Final
from zlib import crc32

import msgspec

from shared.failures import Failure

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SIGN: Final = 1 << 63
_WRAP: Final = 1 << 64


def micros(moment: datetime) -> int:
    """An aware datetime as stored."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(stored: int) -> datetime:
    """A stored time as an aware UTC datetime."""
    return _EPOCH + timedelta(microseconds=stored)


def millis(seconds: float | None) -> int | None:
    """A duration as stored."""
    return None if seconds is None else round(seconds * 1000)


def seconds(stored: int | None) -> float | None:
    """A stored duration in seconds."""
    return None if stored is None else stored / 1000


def seed_to_row(seed: int) -> int:
    """An unsigned 64-bit seed as a signed integer.

    Raises:
        OverflowError: when it is outside 0 to 2**64 - 1.
    """
    if not 0 <= seed < _WRAP:
        raise OverflowError(f"seed {seed} is not an unsigned 64-bit number")
    return seed - _WRAP if seed >= _SIGN else seed


def seed_from_row(stored: int) -> int:
    """A stored seed as the unsigned number it was."""
    return stored + _WRAP if stored < 0 else stored


def checksum(*payloads: bytes) -> int:
    """CRC-32 over the payloads, one after the other."""
    value = 0
    for payload in payloads:
        value = crc32(payload, value)
    return value


def failure_to_row(failure: Failure | None) -> str | None:
    """A failure as JSON text."""
    return None if failure is None else msgspec.json.encode(failure).decode()


def failure_from_row(stored: str | None) -> Failure | None:
    """A stored failure."""
    return None if stored is None else msgspec.json.decode(stored, type=Failure)
