"""A disk whose power fails: from then on every access fails, and what was not synced is uncertain.

SQLite works on real files through its own VFS, so that it sees what it wrote. Beside them stands
what each file has durably, and what was written since its last sync. After the cut the files are
made to hold what survived of that.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

import apsw
from typing_extensions import override

from tests.reliability.surviving import (
    Change,
    Content,
    Deleted,
    Truncated,
    Written,
    applied,
    survivors,
)


class PowerIsOff(apsw.IOError):
    """What every access gets from the cut on."""

    def __init__(self) -> None:
        super().__init__("the power is off")
        self.result = apsw.SQLITE_IOERR
        self.extendedresult = apsw.SQLITE_IOERR


@dataclass
class Disk:
    """The files that SQLite writes.

    Attributes:
        left: writes and syncs that still succeed before the power fails; None for ever.
        honest: a sync makes durable. One that only says so is what the suite must find out.
    """

    left: int | None = None
    honest: bool = True
    off: bool = False
    syncs: int = 0
    durable: dict[str, Content] = field(default_factory=dict[str, Content])
    pending: list[tuple[str, Change]] = field(default_factory=list[tuple[str, Change]])

    def know(self, name: str) -> None:
        """A file is opened: what it holds at its first time is durable."""
        path = Path(name)
        if name not in self.durable:
            self.durable[name] = bytearray(path.read_bytes()) if path.exists() else None

    def change(self, name: str, change: Change) -> None:
        """This is written. The change at which the power fails is on its way to the disk."""
        self.need_power()
        self.pending.append((name, change))
        self._use()

    def sync(self, name: str) -> None:
        """What was written to this file is durable, with its name."""
        self._use()
        self.syncs += 1
        if self.honest:
            mine = [change for file, change in self.pending if file == name]
            self.pending = [entry for entry in self.pending if entry[0] != name]
            for change in mine:
                self.durable[name] = applied(self.durable.get(name), change)

    def need_power(self) -> None:
        """Raises:
        PowerIsOff: there is none any more."""
        if self.off:
            raise PowerIsOff

    def power_returns(self, chance: random.Random) -> None:
        """The files hold what survived."""
        for name, content in survivors(self.durable, self.pending, chance).items():
            path = Path(name)
            if content is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(content)

    def _use(self) -> None:
        self.need_power()
        if self.left is not None:
            self.left -= 1
            self.off = self.left < 0
        self.need_power()


class LossyVfs(apsw.VFS):
    """SQLite's own VFS on such a disk. Unregister it at the end."""

    def __init__(self, name: str, disk: Disk) -> None:
        self.name = name
        self.disk = disk
        super().__init__(name, "")

    @override
    def xOpen(self, name: "str | apsw.URIFilename | None", flags: list[int]) -> apsw.VFSFile:
        """Every file is one of the disk's."""
        return LossyFile(self.disk, name, flags)

    @override
    def xDelete(self, filename: str, syncdir: bool) -> None:
        """Not durable before a file of this name is synced."""
        self.disk.change(filename, Deleted())
        super().xDelete(filename, syncdir)


class LossyFile(apsw.VFSFile):
    """A file whose writes are the disk's business."""

    def __init__(self, disk: Disk, name: "str | apsw.URIFilename | None", flags: list[int]) -> None:
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        if name is not None:
            disk.know(self._name)
        super().__init__("", name, flags)

    @override
    def xWrite(self, data: bytes, offset: int) -> None:
        """Seen at once, and uncertain until the next sync."""
        self._disk.change(self._name, Written(offset, bytes(data)))
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]

    @override
    def xTruncate(self, newsize: int) -> None:
        """The same."""
        self._disk.change(self._name, Truncated(newsize))
        super().xTruncate(newsize)

    @override
    def xSync(self, flags: int) -> None:
        """The real files need not be: it is the disk that knows what is durable."""
        self._disk.sync(self._name)
