from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.encoding import (
    checksum,
    failure_from_row,
    failure_to_row,
    micros,
    moment,
    seed_from_row,
    seed_to_row,
)
from shared.failures import Failure


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_comes_back_to_the_microsecond(at: datetime) -> None:
    assert moment(micros(at)) == at


def test_a_time_of_another_zone_is_stored_as_the_same_moment() -> None:
    here = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    assert moment(micros(here)) == here


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_every_unsigned_seed_fits_a_signed_column_and_comes_back(seed: int) -> None:
    stored = seed_to_row(seed)
    assert -(2**63) <= stored < 2**63
    assert seed_from_row(stored) == seed


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_outside_64_bits_is_refused(seed: int) -> None:
    with pytest.raises(OverflowError):
        seed_to_row(seed)


@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_flipped_bit_changes_the_checksum(payload: bytes, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, len(payload) * 8 - 1))
    flipped = bytearray(payload)
    flipped[bit // 8] ^= 1 << (bit % 8)
    assert checksum(bytes(flipped)) != checksum(payload)


def test_a_failure_comes_back_whole() -> None:
    failure = Failure(code="engine_error", message="naïve", retryable=True, param="model")
    assert failure_from_row(failure_to_row(failure)) == failure
    assert failure_from_row(failure_to_row(None)) is None
