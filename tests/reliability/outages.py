"""A store through power cuts: it is opened, written until the power fails, and opened again.

All but the disk is the product: how the store is opened, the writer and its checkpoints, and the
operations. One seed is one life of a store; it draws what is written, in which commits, where the
power fails and what survives.
"""

import random
import shutil
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from app.storage.database import DATABASE_NAME, Database
from app.storage.driver import Driver
from app.storage.errors import StoreError
from app.storage.feed_mark import NAME as MARK_NAME
from app.storage.limits import WriterLimits
from shared.ids import GenerationId
from tests.integration.storage.making import NOW
from tests.reliability.apsw_driver import connect
from tests.reliability.ledger import Ledger, Lost
from tests.reliability.lossy_disk import Disk, LossyVfs
from tests.reliability.tales import Job, Tale, consumes, goes_on, tale_of
from tests.reliability.telling import Held, Teller, read_held

CUTS: Final = 10
"""In one life: more would only make the store larger."""
JOBS: Final = 5
"""New ones between two cuts."""
ACCESSES: Final = 500
"""Writes and syncs before the cut, at most: about as many as all that is to be told needs."""
WAL_BYTES: Final = (20_000, 100_000, 4_000_000)
"""When the log goes back into the file: within a few commits, sometimes, never before the close."""


@dataclass
class Life:
    """One store, in one directory; ``directory`` holds an empty one at the start.

    Attributes:
        honest, synchronous: False for the negative controls: a disk that does not sync, a
            connection that does not ask for it.
    """

    directory: Path
    chance: random.Random
    honest: bool = True
    synchronous: bool = True
    ledger: Ledger = field(default_factory=Ledger)
    held: Held = field(default_factory=Held)
    jobs: int = 0
    starts: int = 0
    identity: tuple[str, str] | None = None

    async def cut(self) -> None:
        """Once more: open, write, lose the power; then see that nothing is missing.

        Raises:
            Lost: something is.
        """
        mark = self.directory / MARK_NAME
        before = mark.read_bytes()
        disk = Disk(honest=self.honest, left=int(ACCESSES * self.chance.random()))
        await self._live(disk)
        self.ledger.cut_in.update({Path(name).name for name, _ in disk.pending})
        disk.power_returns(self.chance)
        if self.chance.random() < 0.5:
            mark.write_bytes(before)  # it is not synced at each commit
        await self._look()

    async def converge(self) -> None:
        """In peace, to the end of all that is open.

        Raises:
            Lost: a job has not ended, or something is missing.
        """
        await self._live(Disk())
        await self._look()
        if self.held.jobs:
            raise Lost(f"{[job.number for job in self.held.jobs]} have not ended")

    async def _live(self, disk: Disk) -> None:
        self.starts += 1
        vfs = LossyVfs(f"lossy-{id(disk)}", disk)
        try:
            await self._open_and_tell(disk, vfs.name)
        finally:
            vfs.unregister()

    async def _open_and_tell(self, disk: Disk, vfs: str) -> None:
        def writes(path: Path) -> Driver:
            return connect(path, vfs, synchronous=self.synchronous)

        limits = WriterLimits(wal_bytes_max=self.chance.choice(WAL_BYTES))
        try:
            database = await Database.open(
                self.directory, limits=limits, connect=writes, now=lambda: NOW
            )
        except (StoreError, sqlite3.Error):
            if not disk.off:
                raise
            return
        try:
            await self._tell(database)
        except StoreError:
            if not disk.off:
                raise
        finally:
            disk.off = True
            await database.close()

    async def _tell(self, database: Database) -> None:
        """Until all is told or the power fails."""
        self.ledger.epoch = database.parent_epoch
        generation = GenerationId(f"gen_{self.starts:032x}")
        teller = Teller(database.writer, self.ledger, generation, self.chance)
        jobs = await teller.begin(self.held, database.parent_epoch)
        tales = [goes_on(job, generation, self.chance) for job in jobs]
        tales += [self._new(generation) for _ in range(JOBS)]
        tales.append(consumes(self.ledger, self.held.feed_last, known=self.held.consumer))
        await teller.tell(tales)

    def _new(self, generation: GenerationId) -> Tale:
        self.jobs += 1
        return tale_of(Job(self.jobs), generation, self.chance)

    async def _look(self) -> None:
        """Open a copy as a server would, on the standard library's driver, and check it: the next
        life must begin with what the cut left, not with what this start made of it."""
        copy = self.directory.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.directory, copy)
        try:
            database = await Database.open(copy, now=lambda: NOW)
        except (StoreError, sqlite3.Error) as error:
            raise Lost(f"it does not open: {error}") from error
        found = (database.store_id, database.feed_epoch)
        await database.close()
        if found != (self.identity or found):
            raise Lost(f"it was {self.identity} and is {found}")
        self.identity = found
        self.ledger.check(copy / DATABASE_NAME)
        self.held = read_held(copy / DATABASE_NAME)


async def lives(
    template: Path,
    root: Path,
    seed: int,
    cuts: int,
    *,
    honest: bool = True,
    synchronous: bool = True,
) -> Ledger:
    """One life with so many cuts, and what was acknowledged in it.

    Args:
        template: a directory with an empty store, which is copied.
        root: where to do it; emptied at the end.

    Raises:
        Lost: something that was acknowledged is missing.
    """
    directory = root / "data"
    shutil.copytree(template, directory)
    life = Life(directory, random.Random(seed), honest=honest, synchronous=synchronous)
    try:
        for _ in range(cuts):
            await life.cut()
        await life.converge()
    finally:
        shutil.rmtree(directory)
        shutil.rmtree(root / "copy", ignore_errors=True)
    return life.ledger
