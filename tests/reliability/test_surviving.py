"""What a power cut leaves, by itself."""

import random

import pytest

from tests.reliability.surviving import (
    SECTORS,
    Content,
    Deleted,
    Truncated,
    Written,
    applied,
    pieces,
    survivors,
)


@pytest.mark.parametrize("sector", SECTORS)
@pytest.mark.parametrize(
    ("offset", "size"), [(0, 1), (32, 24), (500, 20), (511, 9_000), (4096, 4096)]
)
def test_the_pieces_of_a_write_are_the_write(sector: int, offset: int, size: int) -> None:
    written = Written(offset, random.Random(size).randbytes(size))
    cut = pieces(written, sector)
    assert b"".join(piece.data for piece in cut) == written.data
    assert cut[0].offset == offset
    for piece in cut:
        last = piece.offset + len(piece.data) - 1
        assert piece.offset // sector == last // sector


def test_changes_are_applied_in_order() -> None:
    content = applied(None, Written(2, b"abc"))
    assert content == b"\0\0abc"
    content = applied(content, Truncated(3))
    assert content == b"\0\0a"
    assert applied(content, Truncated(4)) == b"\0\0a\0"
    assert applied(content, Deleted()) is None


def test_what_is_durable_survives_and_the_rest_may() -> None:
    durable: dict[str, Content] = {"a": bytearray(bytes(10_000)), "b": None}
    pending = [("a", Written(0, b"x" * 10_000)), ("b", Written(0, b"y" * 600))]
    seen: set[tuple[bytes, bytes | None]] = set()
    for seed in range(200):
        left = survivors(durable, pending, random.Random(seed))
        a, b = left["a"], left["b"]
        assert a is not None
        assert len(a) == 10_000
        seen.add((bytes(a), None if b is None else bytes(b)))
    assert (bytes(10_000), None) in seen
    assert (b"x" * 10_000, b"y" * 600) in seen
    assert len(seen) > 50
    assert durable["a"] == bytes(10_000)


def test_after_a_deletion_that_did_not_survive_nothing_of_the_new_file_does() -> None:
    durable: dict[str, Content] = {"wal": bytearray(b"old")}
    pending = [("wal", Deleted()), ("wal", Written(0, b"new"))]
    seen = {
        bytes(left["wal"]) if left["wal"] is not None else None
        for left in (survivors(durable, pending, random.Random(seed)) for seed in range(300))
    }
    assert {b"old", b"new", None} <= seen
    assert all(len(held) == 3 for held in seen if held)
