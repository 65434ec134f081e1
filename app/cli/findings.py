"""What a check of `mlxq doctor` finds."""

from typing import Literal

from msgspec import Struct


class Check(Struct, frozen=True):
    """One finding. `cure` is empty when all is well."""

    name: str
    state: Literal["fine", "problem"]
    detail: str
    cure: str = ""
