"""What a setting is called, where a value came from, and what is said when it cannot be used."""

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from typing_extensions import override

from app.settings import Settings


class Origin(Struct, frozen=True):
    """Where a value came from: the kind, and the file, variable or flag."""

    kind: Literal["default", "file", "environment", "flag"]
    where: str = ""

    @override
    def __str__(self) -> str:
        return f"{self.kind} {self.where}" if self.where else self.kind


class Override(Struct, frozen=True):
    """A value given on the command line: the key, the text, the flag that gave it."""

    key: str
    value: str
    flag: str


class Key(Struct, frozen=True):
    """One setting as documentation and the loader see it. `type` still carries its bounds."""

    section: str
    name: str
    type: Any
    description: str

    @property
    def full(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        return f"MLXQ_{self.section}_{self.name}".upper()


class Loaded(Struct, frozen=True):
    """The settings, the origin of each by full key, and the file that was read, if any."""

    settings: Settings
    origins: dict[str, Origin]
    config_path: Path | None


class SettingsError(Exception):
    """A value that cannot be used. `key`, `origin` and `cure` are in the message."""

    def __init__(self, key: str, origin: Origin, problem: str, cure: str) -> None:
        super().__init__(f"{key} ({origin}): {problem}. {cure}")
        self.key = key
        self.origin = origin
        self.problem = problem
        self.cure = cure


def keys() -> list[Key]:
    """Every setting, in the order of the file."""
    found: list[Key] = []
    for section in msgspec.structs.fields(Settings):
        for item in msgspec.structs.fields(section.type):
            description = next(
                (m.description for m in getattr(item.type, "__metadata__", ()) if m.description), ""
            )
            found.append(Key(section.name, item.name, item.type, description))
    return found
