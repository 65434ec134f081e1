import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from app.storage import schema
from app.storage.connections import writer_connection
from app.storage.database import DATABASE_NAME, Database
from app.storage.errors import AlreadyRunning, NotOurDatabase, SchemaTooNew, StoreDamaged
from app.storage.feed_mark import FeedMark
from app.storage.jobs import insert_job
from app.storage.reading import load_open_jobs
from tests.integration.storage.making import REPOSITORY, make_job, opened, query, tamper

HOLD = """
import asyncio, sys
from pathlib import Path
from app.storage.database import Database

async def main():
    await Database.open(Path(sys.argv[1]))
    print("open", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""

TRY = """
import asyncio, sys
from pathlib import Path
from app.storage.database import Database
from app.storage.errors import AlreadyRunning

async def main():
    try:
        await Database.open(Path(sys.argv[1]))
    except AlreadyRunning as error:
        print(error)

asyncio.run(main())
"""


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_first_start_makes_a_store_that_only_this_user_can_read(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "data"
    async with opened(directory) as database:
        assert (database.parent_epoch, database.backup) == (1, None)
        await database.writer.submit(insert_job(make_job()))
        assert mode_of(directory) == 0o700
        for name in (DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm", "lock"):
            assert mode_of(directory / name) == 0o600, name


async def test_the_file_says_whose_it_is_and_how_it_is_kept(data_dir: Path) -> None:
    async with opened(data_dir):
        pass
    assert query(data_dir, "PRAGMA application_id") == [(schema.APPLICATION_ID,)]
    assert query(data_dir, "PRAGMA user_version") == [(schema.HEAD,)]
    assert query(data_dir, "PRAGMA auto_vacuum") == [(2,)]
    assert query(data_dir, "PRAGMA journal_mode") == [("wal",)]


def test_the_writers_connection_waits_for_the_disk(data_dir: Path) -> None:
    driver = writer_connection(data_dir / DATABASE_NAME)
    assert driver.execute("PRAGMA synchronous").fetchone() == (2,)
    assert driver.execute("PRAGMA foreign_keys").fetchone() == (1,)
    assert driver.execute("PRAGMA secure_delete").fetchone() == (1,)
    assert driver.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
    driver.close()


def test_on_a_mac_the_writer_asks_for_the_platter(tmp_path: Path) -> None:
    """A plain sync ends in the drive's cache there."""
    program = (
        "import sqlite3, sys, sqlalchemy.ext.asyncio\n"
        "sys.platform = 'darwin'\n"
        "from app.storage.connections import set_for_writing\n"
        "driver = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "set_for_writing(driver.cursor())\n"
        "for name in ('synchronous', 'fullfsync', 'checkpoint_fullfsync'):\n"
        "    print(driver.execute(f'PRAGMA {name}').fetchone()[0])\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "f")]
    said = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["2", "1", "1"]


async def test_a_start_that_was_killed_before_the_first_table_is_made_good(tmp_path: Path) -> None:
    tmp_path.joinpath(DATABASE_NAME).touch()
    async with opened(tmp_path):
        pass
    assert query(tmp_path, "PRAGMA auto_vacuum") == [(2,)]


async def test_the_store_keeps_its_name_and_counts_its_parents(data_dir: Path) -> None:
    async with opened(data_dir) as first:
        pass
    async with opened(data_dir) as second:
        pass
    assert second.store_id == first.store_id
    assert second.feed_epoch == first.feed_epoch
    assert (first.parent_epoch, second.parent_epoch) == (1, 2)


async def test_two_stores_have_two_names(data_dir: Path, tmp_path: Path) -> None:
    async with opened(data_dir) as one, opened(tmp_path / "other") as two:
        assert one.store_id != two.store_id


async def test_a_second_open_in_one_process_is_refused(data_dir: Path) -> None:
    async with opened(data_dir):
        with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"):
            await Database.open(data_dir)


def test_a_second_process_is_told_who_holds_the_directory(data_dir: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(data_dir)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        second = subprocess.run(
            [sys.executable, "-c", TRY, str(data_dir)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"in use by process {holder.pid}, started" in second.stdout
        holder.kill()


def test_a_killed_holder_keeps_nobody_out(data_dir: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(data_dir)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        holder.kill()

    async def reopen() -> int:
        async with opened(data_dir) as database:
            return database.parent_epoch

    assert asyncio.run(reopen()) == 2


async def test_a_child_process_does_not_inherit_the_lock(data_dir: Path) -> None:
    async with opened(data_dir):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE
        )
    try:
        async with opened(data_dir) as database:
            assert database.parent_epoch == 2
    finally:
        child.kill()
        await child.communicate()


async def test_a_newer_schema_is_refused_and_left_alone(data_dir: Path) -> None:
    tamper(data_dir, "PRAGMA user_version = 9999")
    with pytest.raises(SchemaTooNew, match="9999"):
        await Database.open(data_dir)
    assert query(data_dir, "PRAGMA user_version") == [(9999,)]


async def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    tmp_path.joinpath("data").mkdir()
    tamper(tmp_path / "data", "CREATE TABLE theirs (x)")
    with pytest.raises(NotOurDatabase):
        await Database.open(tmp_path / "data")
    assert query(tmp_path / "data", "SELECT name FROM sqlite_schema") == [("theirs",)]


async def test_a_file_that_was_emptied_is_refused_where_reports_were_written(
    data_dir: Path,
) -> None:
    (data_dir / "mlxq.db").write_bytes(b"")
    async with opened(data_dir):  # nothing was in it yet
        pass
    mark = FeedMark(data_dir / "mlxq.db")
    known = mark.read()
    assert known is not None
    mark.write(msgspec.structs.replace(known, last=7))
    (data_dir / "mlxq.db").write_bytes(b"")
    with pytest.raises(StoreDamaged, match="is empty"):
        await Database.open(data_dir)
    assert (data_dir / "mlxq.db").read_bytes() == b""
    (data_dir / "mlxq.db").unlink()
    async with opened(data_dir):
        pass


async def test_a_refused_open_lets_go_of_the_lock(data_dir: Path) -> None:
    tamper(data_dir, "PRAGMA user_version = 9999")
    with pytest.raises(SchemaTooNew):
        await Database.open(data_dir)
    tamper(data_dir, f"PRAGMA user_version = {schema.HEAD}")
    async with opened(data_dir):
        pass


async def test_a_column_whose_name_was_damaged_is_found_at_the_start(tmp_path: Path) -> None:
    """SQLite reads the rest of the file by it and sees nothing."""
    await (await Database.open(tmp_path)).close()
    path = tmp_path / DATABASE_NAME
    content = path.read_bytes()
    place = content.index(b"claimed_at INTEGER NOT NULL")
    path.write_bytes(content[:place] + b"k" + content[place + 1 :])
    with pytest.raises(
        StoreDamaged, match=r"other columns: attempt\.claimed_at, attempt\.klaimed_at"
    ):
        await Database.open(tmp_path)


async def test_a_damaged_file_is_found_at_the_start(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        for number in range(50):
            await database.writer.submit(insert_job(make_job(number)))
    damage(data_dir / DATABASE_NAME)
    with pytest.raises((StoreDamaged, sqlite3.DatabaseError)):
        await Database.open(data_dir)


async def test_damage_that_sqlite_cannot_even_quote_is_found_at_the_start(data_dir: Path) -> None:
    path = data_dir / DATABASE_NAME
    content = path.read_bytes()
    assert content.count(b"tablefeedfeed") == 1  # its row of the schema, whose SQL is made wrong
    content = content.replace(b"tablefeedfeed", b"table\xe5\xe5\xe5\xe5feed")
    path.write_bytes(content.replace(b"CREATE TABLE feed (", b"CREATE TABLX feed ("))
    with pytest.raises((StoreDamaged, sqlite3.DatabaseError)):
        await Database.open(data_dir)


async def test_text_that_is_none_is_told_as_damage_by_whoever_reads_it(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        await database.writer.submit(insert_job(make_job(1)))
    tamper(data_dir, "UPDATE job SET model = CAST(x'ff' AS TEXT)")
    async with opened(data_dir) as database:
        with pytest.raises(StoreDamaged, match="model"):
            await load_open_jobs(database.readers)


def damage(path: Path) -> None:
    """Overwrite the middle of every page but the first."""
    content = bytearray(path.read_bytes())
    for page in range(4096, len(content), 4096):
        content[page : page + 64] = bytes([0x5A]) * 64
    path.write_bytes(content)


@pytest.mark.parametrize(
    "statement",
    ["UPDATE feed SET last = 5", "DELETE FROM meta", "CREATE TABLE x (y)", "PRAGMA user_version=7"],
)
async def test_a_reader_cannot_write(database: Database, statement: str) -> None:
    async with database.readers.snapshot() as snapshot:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            await snapshot.rows(statement, {})


async def test_a_reader_sees_one_moment(database: Database) -> None:
    query = "SELECT id FROM job"
    async with database.readers.snapshot() as snapshot:
        assert await snapshot.rows(query, {}) == []
        await database.writer.submit(insert_job(make_job()))
        assert await snapshot.rows(query, {}) == []
    assert len(await database.readers.rows(query)) == 1


async def test_more_reads_than_readers_wait_their_turn(database: Database) -> None:
    count = "SELECT count(*) FROM job"
    assert await asyncio.gather(*(database.readers.value(count) for _ in range(40))) == [0] * 40


@pytest.mark.parametrize("first", [True, False])
def test_a_start_without_a_pending_migration_loads_neither_alembic_nor_sqlalchemy(
    first: bool, data_dir: Path, tmp_path: Path
) -> None:
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from app.storage.database import Database\n"
        "async def main():\n"
        "    await (await Database.open(Path(sys.argv[1]))).close()\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith(('alembic', 'sqlalchemy'))])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "new" if first else data_dir)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
