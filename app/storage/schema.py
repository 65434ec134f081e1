"""The schema at start: is the file ours, is it intact, is a migration pending.

A migration of a database that holds anything is made after a backup copy, in one transaction, with
foreign keys off (a table that is rebuilt is dropped once, which would delete its children), and is
undone when a table lost rows or a reference broke. Whatever happens in the middle, the file holds
the old schema or the new one.
"""

import sqlite3
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import migrations
from app.storage.creation import create
from app.storage.driver import Driver
from app.storage.errors import MigrationFailed, NotOurDatabase, SchemaTooNew, StoreDamaged

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from alembic.config import Config

APPLICATION_ID: Final = 0x6D6C7871  # "mlxq"
Work: TypeAlias = "Callable[[Config], None]"
DAMAGED: Final = "the database is damaged: restore a backup of it, or move it away"
HEAD: Final = int(migrations.HEAD)


def check(driver: Driver) -> None:
    """See that this is our file and that it is intact.

    Raises:
        NotOurDatabase, SchemaTooNew, StoreDamaged: it is not to be touched.
    """
    application, version = _number(driver, "application_id"), _number(driver, "user_version")
    if application not in (0, APPLICATION_ID) or (application == 0 and _tables(driver)):
        raise NotOurDatabase(f"application_id {application:#x} is not this program's")
    if version > HEAD:
        raise SchemaTooNew(f"schema {version} is newer than this program's {HEAD}")
    ((verdict,),) = driver.execute("PRAGMA quick_check(1)").fetchall()
    if verdict != "ok":
        raise StoreDamaged(f"{DAMAGED} (SQLite says: {' '.join(str(verdict).split())[:200]})")
    if version == HEAD and (odd := _odd_columns(driver)):
        raise StoreDamaged(f"{DAMAGED} (its tables have other columns: {', '.join(odd)[:200]})")


def pending(driver: Driver) -> bool:
    """Whether the file is older than this program."""
    return _number(driver, "user_version") < HEAD


def migrate(driver: sqlite3.Connection, path: Path, now: datetime) -> Path | None:
    """Bring the file to this program's schema; returns the backup's path, if there was anything to
    back up. In an empty file the schema is made as it is now.

    Raises:
        MigrationFailed: rows or references would have been lost; the file is as it was.
    """
    if not _tables(driver):
        _make(driver)
        return None
    backup = _back_up(driver, path, now)
    upgrade(driver)
    return backup


def upgrade(driver: sqlite3.Connection) -> None:
    """Run every pending migration."""
    run(driver, lambda config: _upgrade(config, migrations.HEAD), HEAD)


def _make(driver: sqlite3.Connection) -> None:
    driver.execute("BEGIN IMMEDIATE")
    try:
        create(driver)
        _number_as(driver, HEAD)
        driver.execute("COMMIT")
    except BaseException:
        driver.rollback()
        raise


def _number_as(driver: sqlite3.Connection, version: int) -> None:
    driver.execute(f"PRAGMA user_version = {version}")
    driver.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def downgrade(driver: sqlite3.Connection, revision: str) -> None:
    """Go back to an earlier schema ("base" for none): for tests and for emergencies."""
    version = 0 if revision == "base" else int(revision)
    run(driver, lambda config: _downgrade(config, revision), version)


def run(driver: sqlite3.Connection, work: Work, version: int) -> None:
    """Run alembic's ``work`` in one transaction and check what it did."""
    driver.execute("PRAGMA foreign_keys = OFF")
    try:
        with _transaction(driver) as config:
            before = _row_counts(driver)
            work(config)
            _compare(before, _row_counts(driver))
            _check_references(driver)
            _number_as(driver, version)
    finally:
        driver.execute("PRAGMA foreign_keys = ON")


@contextmanager
def _transaction(driver: sqlite3.Connection) -> "Generator[Config]":
    """Alembic's configuration, working on this very connection and inside one transaction: alembic
    finds it begun and so neither begins nor commits its own."""
    from alembic.config import Config
    from sqlalchemy import create_engine
    from sqlalchemy.pool import StaticPool

    engine = create_engine(
        "sqlite://", creator=lambda: driver, poolclass=StaticPool, pool_reset_on_return=None
    )
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with engine.connect() as connection, connection.begin():
        driver.execute("BEGIN IMMEDIATE")
        config.attributes["connection"] = connection
        yield config


def _upgrade(config: "Config", revision: str) -> None:
    from alembic import command

    command.upgrade(config, revision)


def _downgrade(config: "Config", revision: str) -> None:
    from alembic import command

    command.downgrade(config, revision)


def _back_up(driver: sqlite3.Connection, path: Path, now: datetime) -> Path:
    version = _number(driver, "user_version")
    backup = path.with_name(f"{path.stem}-schema-{version:04d}-{now:%Y%m%dT%H%M%S%f}.db")
    try:
        driver.execute("VACUUM INTO ?", (str(backup),))
    except BaseException:
        backup.unlink(missing_ok=True)  # a part of it, on a disk that is full
        raise
    backup.chmod(0o600)
    copy = sqlite3.connect(backup)
    try:
        ((verdict,),) = copy.execute("PRAGMA integrity_check(1)").fetchall()
    finally:
        copy.close()
    if verdict != "ok":
        raise MigrationFailed(f"the backup {backup} is damaged: {verdict}")
    return backup


def _compare(before: dict[str, int], after: dict[str, int]) -> None:
    for table, count in before.items():
        if after.get(table, count) != count:
            raise MigrationFailed(f"{table} had {count} rows and would have {after[table]}")


def _odd_columns(driver: Driver) -> list[str]:
    """Columns that this schema does not have, or has in addition: SQLite takes the text of a table
    for true, whatever befell it."""
    with closing(sqlite3.connect(":memory:")) as right:
        create(right)
        found, expected = _columns(driver), _columns(right)
    return sorted(f"{table}.{column}" for table, column in found ^ expected)


def _columns(driver: Driver) -> set[tuple[str, str]]:
    rows = driver.execute(
        "SELECT tables.name, columns.name FROM sqlite_schema AS tables"
        " JOIN pragma_table_info(tables.name) AS columns WHERE tables.type = 'table'"
        " AND tables.name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return {(str(table), str(column)) for table, column in rows}


def _check_references(driver: sqlite3.Connection) -> None:
    broken = driver.execute("PRAGMA foreign_key_check").fetchall()
    if broken:
        raise MigrationFailed(f"{len(broken)} broken references, the first in {broken[0][0]}")


def _row_counts(driver: sqlite3.Connection) -> dict[str, int]:
    return {table: _count(driver, table) for table in _tables(driver)}


def _count(driver: sqlite3.Connection, table: str) -> int:
    kept = f" WHERE NOT ({migrations.ELSEWHERE[table]})" if table in migrations.ELSEWHERE else ""
    ((count,),) = driver.execute(f'SELECT count(*) FROM "{table}"{kept}').fetchall()  # noqa: S608
    return int(count)


def _tables(driver: Driver) -> list[str]:
    rows = driver.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table'"
        " AND name NOT LIKE 'sqlite_%' AND name <> 'alembic_version'"
    ).fetchall()
    return [str(name) for (name,) in rows]


def _number(driver: Driver, pragma: str) -> int:
    ((value,),) = driver.execute(f"PRAGMA {pragma}").fetchall()
    return int(value)
