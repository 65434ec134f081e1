"""The schema's history: up, down, up; nothing lost; the tables in code are the tables on disk."""

import re
import sqlite3
import stat
from collections.abc import Generator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

import migrations
from app.storage import schema
from app.storage.connections import create_file, writer_connection
from app.storage.creation import TABLES
from app.storage.errors import MigrationFailed
from app.storage.tables import metadata
from app.storage.tables_sql import tables_sql
from app.storage.triggers import TRIGGERS

NOW = datetime(2026, 3, 1, tzinfo=UTC)
JOB = (
    "INSERT INTO job (id, kind, durability, class, class_rank, priority, surface, tenant, model,"
    " state, max_attempts, created_at, scheduled_at, available_at, deadline_at, render_version,"
    " seed, settings, request, request_checksum) VALUES ('job_1', 'chat', 'durable', 'batch', 2,"
    " 0, 'chat', 't', 'm', 'available', 1, 1, 1, 1, 9, 1, 0, x'', x'00', 0)"
)
ATTEMPT = (
    "INSERT INTO attempt (job, number, generation, claimed_at) VALUES ('job_1', 1, 'gen_1', 1)"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An empty database file."""
    path = tmp_path / "mlxq.db"
    create_file(path)
    return path


@pytest.fixture
def driver(path: Path) -> Generator[sqlite3.Connection]:
    """Its writer's connection."""
    connection = writer_connection(path)
    yield connection
    connection.close()


def normal(sql: str) -> str:
    """SQL without the differences that mean nothing."""
    plain = re.sub(r"\s+", " ", sql.strip().replace('"', ""))
    return re.sub(r"\s*([(),])\s*", r"\1", plain).rstrip("; ")


def on_disk(driver: sqlite3.Connection) -> dict[str, str]:
    """Every table, index and trigger by name, as it was made."""
    rows = driver.execute(
        "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"
        " AND name NOT LIKE 'sqlite_%' AND name <> 'alembic_version'"
    )
    return {name: normal(sql) for name, sql in rows}


def in_code() -> dict[str, str]:
    """The same, as ``tables`` and ``triggers`` say it."""
    dialect = sqlite.dialect()
    wanted = {name: normal(sql) for name, sql in TRIGGERS.items()}
    for table in metadata.tables.values():
        wanted[table.name] = normal(str(CreateTable(table).compile(dialect=dialect)))
        for index in table.indexes:
            wanted[str(index.name)] = normal(str(CreateIndex(index).compile(dialect=dialect)))
    return wanted


def test_the_migrations_make_exactly_the_tables_in_code(
    driver: sqlite3.Connection, path: Path
) -> None:
    schema.upgrade(driver)
    assert on_disk(driver) == in_code()


def test_the_text_that_a_new_file_is_made_from_is_that_of_the_tables_in_code() -> None:
    assert TABLES.read_text() == tables_sql()


def test_a_new_file_is_what_the_migrations_come_to(tmp_path: Path) -> None:
    made, migrated = tmp_path / "made", tmp_path / "migrated"
    for path in (made, migrated):
        create_file(path)
        with closing(writer_connection(path)) as driver:
            schema.migrate(driver, path, NOW) if path is made else schema.upgrade(driver)
            assert driver.execute("PRAGMA application_id").fetchone() == (schema.APPLICATION_ID,)
            assert driver.execute("PRAGMA user_version").fetchone() == (schema.HEAD,)
    assert dump(made) == dump(migrated)


def dump(path: Path) -> list[str]:
    """Every object and row of a file, as SQL."""
    with closing(sqlite3.connect(path)) as connection:
        return sorted(map(normal, connection.iterdump()))


@pytest.mark.parametrize("table", sorted(metadata.tables))
def test_no_rule_makes_a_table_of_its_own_each_time_a_row_is_written(
    driver: sqlite3.Connection, path: Path, table: str
) -> None:
    schema.migrate(driver, path, NOW)
    columns = [row[1] for row in driver.execute(f"PRAGMA table_info({table})")]
    write = f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})"
    program = driver.execute(f"EXPLAIN {write}", [1] * len(columns)).fetchall()
    assert "OpenEphemeral" not in {step[1] for step in program}


def test_alembic_sees_no_drift(driver: sqlite3.Connection, path: Path) -> None:
    from alembic import command

    schema.upgrade(driver)
    schema.run(driver, command.check, schema.HEAD)


def test_the_head_that_a_start_compares_with_is_alembics(driver: sqlite3.Connection) -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [migrations.HEAD]
    assert [revision.revision for revision in script.walk_revisions()] == sorted(
        (path.name[:4] for path in Path(script.versions).glob("[0-9]*.py")), reverse=True
    )


def test_up_down_and_up_again(driver: sqlite3.Connection, path: Path) -> None:
    schema.migrate(driver, path, NOW)
    schema.downgrade(driver, "base")
    assert on_disk(driver) == {}
    assert driver.execute("PRAGMA user_version").fetchone() == (0,)
    schema.migrate(driver, path, NOW)
    assert on_disk(driver) == in_code()
    assert driver.execute("PRAGMA user_version").fetchone() == (schema.HEAD,)


def test_an_empty_file_is_migrated_without_a_backup(driver: sqlite3.Connection, path: Path) -> None:
    assert schema.migrate(driver, path, NOW) is None


def test_old_data_survives_and_lies_in_a_backup_too(driver: sqlite3.Connection, path: Path) -> None:
    schema.migrate(driver, path, NOW)
    driver.execute(JOB)
    driver.execute(ATTEMPT)
    driver.execute("PRAGMA user_version = 0")  # as if the last step were still to come
    assert schema.pending(driver)
    backup = schema.migrate(driver, path, NOW)
    assert backup is not None
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert driver.execute("SELECT id FROM job").fetchall() == [("job_1",)]
    copy = sqlite3.connect(backup)
    assert copy.execute("SELECT id, model FROM job").fetchall() == [("job_1", "m")]
    assert copy.execute("SELECT job, number FROM attempt").fetchall() == [("job_1", 1)]
    copy.close()


def test_a_step_that_loses_rows_is_undone(driver: sqlite3.Connection, path: Path) -> None:
    schema.migrate(driver, path, NOW)
    driver.execute(JOB)
    before = on_disk(driver)

    def lose(_config: object) -> None:
        driver.execute("CREATE TABLE extra (x)")
        driver.execute("DELETE FROM job")

    with pytest.raises(MigrationFailed, match="job had 1 rows and would have 0"):
        schema.run(driver, lose, 2)
    assert on_disk(driver) == before
    assert driver.execute("SELECT count(*) FROM job").fetchone() == (1,)
    assert driver.execute("PRAGMA user_version").fetchone() == (schema.HEAD,)


def test_a_step_that_breaks_references_is_undone(driver: sqlite3.Connection, path: Path) -> None:
    schema.migrate(driver, path, NOW)
    driver.execute(JOB)
    driver.execute(ATTEMPT)

    def break_(_config: object) -> None:
        driver.execute("UPDATE job SET id = 'job_2'")

    with pytest.raises(MigrationFailed, match="broken references"):
        schema.run(driver, break_, 2)
    assert driver.execute("SELECT id FROM job").fetchall() == [("job_1",)]


def test_a_rebuilt_table_keeps_its_children(driver: sqlite3.Connection, path: Path) -> None:
    """What a batch migration does: with foreign keys on, the drop would delete the attempts."""
    schema.migrate(driver, path, NOW)
    driver.execute(JOB)
    driver.execute(ATTEMPT)

    def rebuild(_config: object) -> None:
        ((sql,),) = driver.execute("SELECT sql FROM sqlite_schema WHERE name = 'job'").fetchall()
        driver.execute(re.sub(r'CREATE TABLE "?job"?', "CREATE TABLE job_new", sql, count=1))
        driver.execute("INSERT INTO job_new SELECT * FROM job")
        driver.execute("DROP TABLE job")
        driver.execute("ALTER TABLE job_new RENAME TO job")

    schema.run(driver, rebuild, 2)
    assert driver.execute("SELECT count(*) FROM attempt").fetchone() == (1,)
    assert driver.execute("PRAGMA foreign_keys").fetchone() == (1,)


def test_a_failing_step_leaves_the_old_schema(driver: sqlite3.Connection, path: Path) -> None:
    schema.migrate(driver, path, NOW)

    def fail(_config: object) -> None:
        driver.execute("CREATE TABLE half (x)")
        raise RuntimeError("power")

    with pytest.raises(RuntimeError, match="power"):
        schema.run(driver, fail, 2)
    assert on_disk(driver) == in_code()
    assert driver.execute("PRAGMA user_version").fetchone() == (schema.HEAD,)
