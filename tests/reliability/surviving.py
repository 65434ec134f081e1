"""What a power cut leaves of writes that were not synced. Pure: chance is given."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias, assert_never

SECTORS: Final = (512, 4096)
SHARES: Final = (0.1, 0.5, 0.9)

Content: TypeAlias = bytearray | None
"""A file's bytes; None when it is not there."""


@dataclass(frozen=True, slots=True)
class Written:
    """These bytes, at this place."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncated:
    """To this size."""

    size: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The name is gone."""


Change: TypeAlias = Written | Truncated | Deleted
Pending: TypeAlias = Sequence[tuple[str, Change]]
"""Changes that were not synced, each with its file's name, in order."""


class Survival(StrEnum):
    """What becomes of them."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    PREFIX = "the first so many, the next one torn"
    SCATTERED = "each sector for itself"
    GARBLED = "each sector for itself, and some hold neither old nor new"


def survivors(
    durable: Mapping[str, Content], pending: Pending, chance: random.Random
) -> dict[str, Content]:
    """What the files hold when the power is back."""
    files = {name: None if held is None else bytearray(held) for name, held in durable.items()}
    survival = chance.choice(list(Survival))
    match survival:
        case Survival.NOTHING:
            pass
        case Survival.EVERYTHING:
            for name, change in pending:
                files[name] = applied(files.get(name), change)
        case Survival.PREFIX:
            _prefix(files, pending, chance)
        case Survival.SCATTERED | Survival.GARBLED:
            _scattered(files, pending, chance, garbled=survival is Survival.GARBLED)
        case _:
            assert_never(survival)
    return files


def applied(content: Content, change: Change) -> Content:
    """The content after a change; the one that is given may be changed in place."""
    match change:
        case Deleted():
            return None
        case Truncated(size):
            held = content if content is not None else bytearray()
            del held[size:]
            held.extend(bytes(size - len(held)))
            return held
        case Written(offset, data):
            held = content if content is not None else bytearray()
            held.extend(bytes(max(0, offset - len(held))))
            held[offset : offset + len(data)] = data
            return held


def pieces(written: Written, sector: int) -> list[Written]:
    """A write, cut where sectors meet."""
    offset, data = written.offset, written.data
    ends = range((offset // sector + 1) * sector, offset + len(data) + sector, sector)
    starts = [offset, *ends]
    return [
        Written(start, data[start - offset : end - offset])
        for start, end in zip(starts, ends, strict=False)
        if start < offset + len(data)
    ]


def _prefix(files: dict[str, Content], pending: Pending, chance: random.Random) -> None:
    whole = chance.randint(0, len(pending))
    for name, change in pending[:whole]:
        files[name] = applied(files.get(name), change)
    for name, change in pending[whole : whole + 1]:
        if isinstance(change, Written):
            torn = pieces(change, chance.choice(SECTORS))
            for piece in torn[: chance.randint(0, len(torn) - 1)]:
                files[name] = applied(files.get(name), piece)


def _scattered(
    files: dict[str, Content], pending: Pending, chance: random.Random, *, garbled: bool
) -> None:
    sector, share = chance.choice(SECTORS), chance.choice(SHARES)
    kept_names: set[str] = set()
    for name, change in pending:
        if name in kept_names:
            continue  # its old file is there still, whatever came after in the new one
        for piece in pieces(change, sector) if isinstance(change, Written) else [change]:
            if chance.random() < share:
                files[name] = applied(files.get(name), piece)
            elif isinstance(piece, Deleted):
                kept_names.add(name)
            elif garbled and isinstance(piece, Written) and chance.random() < 0.3:
                junk = Written(piece.offset, chance.randbytes(len(piece.data)))
                files[name] = applied(files.get(name), junk)
