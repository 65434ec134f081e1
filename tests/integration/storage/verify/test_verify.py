"""Every check finds what it is there to find, and nothing in a store that is right."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.storage.connections import writer_connection
from app.storage.errors import OtherSchema
from app.storage.triggers import TRIGGERS
from app.storage.verify import Violation, verify, verify_file
from app.storage.verify.violation import VIOLATIONS_MAX
from tests.integration.storage.making import opened
from tests.integration.storage.verify.history import make_history
from tests.integration.storage.verify.planted import IDS, PLANTED


def plant(path: Path, script: str) -> None:
    """Do what the store would never let anybody do."""
    with closing(sqlite3.connect(path, isolation_level=None)) as driver:
        driver.execute("PRAGMA ignore_check_constraints = 1")
        for trigger in TRIGGERS:
            driver.execute(f"DROP TRIGGER {trigger}")
        for statement in filter(str.strip, script.split(";")):
            assert driver.execute(statement, IDS).rowcount != 0, statement
        for trigger in TRIGGERS.values():
            driver.execute(trigger)


@pytest.mark.parametrize(
    ("invariant", "subject", "message", "script"),
    PLANTED,
    ids=[f"{invariant} {subject} {message}" for invariant, subject, message, _ in PLANTED],
)
def test_what_cannot_be_is_found(
    store: Path, invariant: str, subject: str, message: str, script: str
) -> None:
    plant(store, script)
    found = verify_file(store).violations
    assert [
        violation
        for violation in found
        if (violation.invariant, violation.subject) == (invariant, IDS.get(subject, subject))
        and message in violation.message
    ], found


def test_every_invariant_has_a_violation_planted() -> None:
    assert {invariant for invariant, *_ in PLANTED} == {
        *("I1", "I3", "I4", "I5", "I6"),
        *("dependencies", "schedules"),
        *("states", "feed", "commands", "durability", "checksums", "file"),
    }


def test_nothing_is_wrong_with_a_store_that_is_right(store: Path) -> None:
    verdict = verify_file(store)
    assert (verdict.jobs, verdict.violations) == (8, [])


def test_a_missing_trigger_is_found(store: Path) -> None:
    with closing(sqlite3.connect(store)) as driver:
        driver.execute("DROP TRIGGER attempt_end_is_final")
    expected = Violation("file", "attempt_end_is_final", "the trigger is not there")
    assert verify_file(store).violations == [expected]


def test_a_page_that_was_overwritten_is_found(store: Path) -> None:
    with closing(sqlite3.connect(store)) as driver:
        root = "SELECT rootpage FROM sqlite_schema WHERE name = 'job_deadline'"
        ((page,),) = driver.execute(root)
    content = bytearray(store.read_bytes())
    content[(page - 1) * 4096 + 3 : (page - 1) * 4096 + 5] = b"\xff\xff"
    store.write_bytes(content)
    assert {found.invariant for found in verify_file(store).violations} == {"file"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE report SET seq = 6 WHERE seq = 5", "share place 6"),
        (
            "INSERT INTO report SELECT 'another', 1, 99, kind, subject, 0, 0, outcome, reason,"
            " complete, created_at, checksum, payload FROM report WHERE seq = 5",
            "has 2 reports",
        ),
    ],
)
def test_reports_that_the_tables_keys_would_have_kept_apart_are_found(
    store: Path, change: str, told: str
) -> None:
    """Without the keys, as after a damage."""
    with closing(sqlite3.connect(store)) as driver:
        driver.execute("CREATE TABLE report_copy AS SELECT * FROM report")
        driver.execute("DROP TABLE report")
        driver.execute("ALTER TABLE report_copy RENAME TO report")
        driver.execute(change)
        driver.commit()
    assert told in [violation.message for violation in verify_file(store).violations]


def test_a_store_that_is_broken_all_over_is_not_listed_in_full(store: Path) -> None:
    plant(
        store,
        "WITH RECURSIVE n(n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM n WHERE n < 350)"
        " INSERT INTO report SELECT 'r' || n, 1, n, 'job', 'job_of_' || n, 0, 0,"
        " 'completed', NULL, 1, 1, 0, x'' FROM n",
    )
    checksums = [v for v in verify_file(store).violations if v.message.startswith("its report's")]
    assert len(checksums) == VIOLATIONS_MAX


async def test_what_was_deleted_as_old_is_not_missed(tmp_path: Path) -> None:
    await make_history(tmp_path / "data")
    path = tmp_path / "data" / "mlxq.db"
    with closing(writer_connection(path)) as driver:
        driver.execute("DELETE FROM job WHERE finalized_at IS NOT NULL")
        driver.execute("DELETE FROM report WHERE seq < 4")
        driver.execute(
            "UPDATE feed SET pruned = 3, bytes = (SELECT sum(length(payload)) FROM report)"
        )
    assert verify_file(path).violations == []


def test_what_cannot_even_be_looked_at_is_told(store: Path) -> None:
    plant(store, "UPDATE attempt SET choice_counts = '{' WHERE job = :one")
    found = verify_file(store).violations
    assert Violation("file", "tokens", "could not be checked: malformed JSON") in found


def test_what_a_killed_server_left_in_its_log_counts(history: Path, tmp_path: Path) -> None:
    live, copy = Path(shutil.copy(history, tmp_path / "live.db")), tmp_path / "mlxq.db"
    with closing(writer_connection(live)) as driver:
        driver.execute("UPDATE feed SET last = 9")
        shutil.copy(live, copy)
        shutil.copy(f"{live}-wal", f"{copy}-wal")
    assert [found.invariant for found in verify_file(copy).violations] == ["feed"]


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        verify_file(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


async def test_an_empty_store_is_right(data_dir: Path) -> None:
    async with opened(data_dir) as database:
        assert await verify(database.readers) == []


async def test_a_store_is_verified_while_it_is_written(data_dir: Path) -> None:
    await make_history(data_dir)
    async with opened(data_dir) as database:
        assert await verify(database.readers) == []
        assert verify_file(database.path).jobs == 8


def test_verifying_changes_no_file(store: Path) -> None:
    before = store.read_bytes()
    verify_file(store)
    assert store.read_bytes() == before
    assert sorted(path.name for path in store.parent.iterdir()) == ["mlxq.db"]


def test_another_schema_is_not_judged(store: Path) -> None:
    with closing(sqlite3.connect(store)) as driver:
        driver.execute("PRAGMA user_version = 1")
    with pytest.raises(OtherSchema, match="schema 1"):
        verify_file(store)
