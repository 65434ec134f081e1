"""Minted ids sort by time and never go back."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from shared.ids import IdMint, id_body, report_id


def always(byte: int) -> Callable[[int], bytes]:
    return lambda length: bytes([byte]) * length


@given(st.lists(st.integers(0, 2**48 - 1), min_size=2, max_size=30), st.integers(0, 255))
def test_ids_grow_whatever_the_clock_does(times: list[int], byte: int) -> None:
    clock = iter(times)
    mint = IdMint(lambda: next(clock), always(byte))
    ids = [mint.job() for _ in times]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_an_id_after_a_restart_is_above_the_last_one_before() -> None:
    before = IdMint(lambda: 5_000_000, always(1)).job()
    after = IdMint(lambda: 1, always(1), last=id_body(before)).job()
    assert after > before


def test_ids_have_their_prefix_and_32_digits() -> None:
    mint = IdMint(lambda: 1, always(0))
    for made, prefix in ((mint.job(), "job"), (mint.generation(), "gen"), (mint.request(), "req")):
        assert made.partition("_")[0] == prefix
        assert len(id_body(made)) == 32


def test_a_report_id_follows_from_its_subject() -> None:
    assert report_id("job", "job_1") == report_id("job", "job_1")
    assert report_id("job", "job_1") != report_id("generation", "job_1")
