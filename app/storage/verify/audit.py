"""All checks over one moment of the store. Nothing is written, and a running server is not held up.

A violation is never what a crash, a lost race or a stale message left behind: those the store
survives by its rules. It is a bug or a damaged file.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

import migrations
from app.storage.errors import OtherSchema
from app.storage.readers import Readers
from app.storage.verify.attempts import fence
from app.storage.verify.commands import commands
from app.storage.verify.feed import feed
from app.storage.verify.file import file
from app.storage.verify.jobs import endings, states
from app.storage.verify.journal import journal
from app.storage.verify.payloads import checksums, durability
from app.storage.verify.receipts import receipts
from app.storage.verify.reports import reports, reports_agree
from app.storage.verify.tokens import tokens
from app.storage.verify.violation import Violation
from app.storage.verify.waiting import dependencies, schedules
from app.storage.verify.webhooks import webhooks

Check: TypeAlias = Callable[[sqlite3.Connection], list[Violation]]

CHECKS: Final[tuple[Check, ...]] = (
    file,
    states,
    endings,
    reports,
    reports_agree,
    receipts,
    journal,
    fence,
    tokens,
    feed,
    webhooks,
    commands,
    dependencies,
    schedules,
    durability,
    checksums,
)


class Verdict(msgspec.Struct, frozen=True):
    """What was found in how many jobs."""

    jobs: int
    violations: list[Violation]


async def verify(readers: Readers) -> list[Violation]:
    """What is wrong with the store, as of now. Works in a thread and on a connection of its own,
    so that the loop goes on meanwhile."""
    verdict = await asyncio.to_thread(verify_file, readers.path)
    return verdict.violations


def verify_file(path: Path) -> Verdict:
    """What is wrong with this database file; a server may be running on it.

    Raises:
        OtherSchema: it is not of this program's schema.
        sqlite3.Error: it cannot be read at all.
    """
    with closing(_connection(path)) as driver:
        driver.execute("BEGIN")
        _check_schema(driver)
        ((jobs,),) = driver.execute("SELECT count(*) FROM job").fetchall()
        return Verdict(jobs, [found for check in CHECKS for found in _run(check, driver)])


def _connection(path: Path) -> sqlite3.Connection:
    """One that cannot write. Not opened read-only, since SQLite then does not load the CHECKs that
    it is to verify."""
    driver = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
    driver.execute("PRAGMA query_only = 1")
    driver.execute("PRAGMA wal_autocheckpoint = 0")
    return driver


def _run(check: Check, driver: sqlite3.Connection) -> list[Violation]:
    """What the check finds; that it cannot look is a finding too."""
    try:
        return check(driver)
    except (sqlite3.Error, ValueError) as error:
        return [Violation("file", check.__name__, f"could not be checked: {error}")]


def _check_schema(driver: sqlite3.Connection) -> None:
    ((version,),) = driver.execute("PRAGMA user_version").fetchall()
    if version != int(migrations.HEAD):
        raise OtherSchema(version, int(migrations.HEAD))
