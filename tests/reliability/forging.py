"""Messages that nobody would send: noise, messages with any values, and messages bent on the way.

Values are made from the types themselves, so that a new message or field is forged too. Numbers and
ids are often those that the other side knows, or nearly.
"""

import random
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, Final

import msgspec
from msgspec import inspect

from shared.codec import encode

NUMBERS: Final = (0, 1, 2, 3, -1, 7, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
FLOATS: Final = (0.0, -1.0, 0.5, 1e308, float("inf"), float("-inf"), float("nan"))
TEXTS: Final = ("", "x", "not_held", "sealed", "\0", "é🎉\U0010ffff", "]" * 300)
LENGTH_MAX: Final = 4
NOISE_MAX: Final = 400


class Forger:
    """Forges messages of one direction.

    Args:
        union: the direction's messages.
        known: values for fields of these names, as often as not: ids that the other side knows.
    """

    def __init__(
        self, union: UnionType, chance: random.Random, known: Mapping[str, Sequence[Any]]
    ) -> None:
        kinds = inspect.type_info(union)
        assert isinstance(kinds, inspect.UnionType)
        self._kinds = kinds.types
        self._chance = chance
        self._known = known

    def part(self) -> bytes:
        """One message part, as it comes from the socket."""
        match self._chance.randrange(4):
            case 0:
                return self._chance.randbytes(self._chance.randint(0, NOISE_MAX))
            case 1:
                return self._bent(self._messages())
            case _:
                return self._messages()

    def message(self) -> Any:
        """One message of sound form, with any values."""
        return self._value(self._chance.choice(self._kinds), "")

    def _messages(self) -> bytes:
        return encode([self.message() for _ in range(self._chance.randint(1, LENGTH_MAX))])

    def _bent(self, part: bytes) -> bytes:
        """With bits flipped, cut short, with a piece twice, or with a lie about a length."""
        bent, chance = bytearray(part), self._chance
        match chance.randrange(4):
            case 0:
                for _ in range(chance.randint(1, 8)):
                    bent[chance.randrange(len(bent))] ^= 1 << chance.randrange(8)
            case 1:
                del bent[chance.randrange(len(bent)) :]
            case 2:
                start = chance.randrange(len(bent))
                bent[start:start] = bent[start : start + chance.randint(1, 40)]
            case _:
                bent[chance.randrange(len(bent))] = chance.choice((0xDD, 0xDF, 0xDB, 0xC6, 0xCF))
        return bytes(bent)

    def _value(self, kind: inspect.Type, name: str) -> Any:
        chance = self._chance
        if name in self._known and chance.random() < 0.6:
            return chance.choice(self._known[name])
        match kind:
            case inspect.StructType():
                return kind.cls(**{f.name: self._value(f.type, f.name) for f in kind.fields})
            case inspect.UnionType():
                return self._value(chance.choice(kind.types), name)
            case inspect.VarTupleType() | inspect.ListType():
                length = chance.choice((0, 1, 1, LENGTH_MAX))
                return tuple(self._value(kind.item_type, "") for _ in range(length))
            case inspect.DictType():
                return {self._value(kind.key_type, ""): self._value(kind.value_type, "")}
            case inspect.LiteralType():
                return chance.choice(kind.values)
            case _:
                return self._plain(kind)

    def _plain(self, kind: inspect.Type) -> Any:
        chance = self._chance
        match kind:
            case inspect.IntType():
                return chance.choice(NUMBERS)
            case inspect.FloatType():
                return chance.choice(FLOATS)
            case inspect.BoolType():
                return chance.random() < 0.5
            case inspect.BytesType():
                return chance.randbytes(chance.randint(0, 20))
            case inspect.NoneType():
                return None
            case inspect.RawType():
                return msgspec.Raw(msgspec.msgpack.encode(chance.choice(TEXTS)))
            case _:
                return chance.choice(TEXTS)
