"""Rules that hold whatever our own statements do: straight SQL against the tables."""

import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from app.domain.job import FINAL_STATES, JobState
from app.storage.connections import writer_connection
from app.storage.database import DATABASE_NAME

JOB: dict[str, Any] = {
    "id": "job_1",
    "kind": "chat",
    "durability": "durable",
    "class": "batch",
    "class_rank": 2,
    "priority": 0,
    "surface": "chat",
    "tenant": "t",
    "model": "m",
    "state": "available",
    "attempt": 1,
    "max_attempts": 2,
    "created_at": 1,
    "scheduled_at": 1,
    "available_at": 1,
    "deadline_at": 9,
    "render_version": 1,
    "seed": 0,
    "settings": b"",
    "request": b"x",
    "request_checksum": 1,
}
ATTEMPT: dict[str, Any] = {"job": "job_1", "number": 1, "generation": "g", "claimed_at": 1}
REPORT: dict[str, Any] = {
    "id": "r",
    "revision": 1,
    "seq": 1,
    "kind": "job",
    "subject": "job_1",
    "outcome": "failed",
    "complete": 1,
    "created_at": 1,
    "checksum": 0,
    "payload": b"{}",
}


@pytest.fixture
def driver(data_dir: Path) -> Generator[sqlite3.Connection]:
    """A connection with the writer's settings."""
    connection = writer_connection(data_dir / DATABASE_NAME)
    yield connection
    connection.close()


def insert(driver: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    columns, values = ", ".join(row), ", ".join("?" * len(row))
    driver.execute(f"INSERT INTO {table} ({columns}) VALUES ({values})", tuple(row.values()))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"state": "todo"}, "state_known"),
    ({"durability": "eternal"}, "durability_known"),
    ({"class": "batch", "class_rank": 0}, "class_known"),
    ({"class": "vip"}, "class_known"),
    ({"stop_reason": "boredom"}, "stop_reason_known"),
    ({"priority": 40_000}, "priority_range"),
    ({"state": "completed"}, "finalized_iff_final"),
    ({"state": "available", "finalized_at": 5}, "finalized_iff_final"),
    ({"state": "failed", "finalized_at": 5}, "failure_iff_failed"),
    ({"state": "completed", "finalized_at": 5, "failure": "[]"}, "failure_iff_failed"),
    ({"finish_reason": "stop"}, "finish_reason_only_final"),
    ({"failures": 3}, "failures_range"),
    ({"max_attempts": 0}, "failures_range"),
    ({"attempt": -1}, "attempt_range"),
    ({"state": "running", "attempt": 0}, "attempt_range"),
    ({"started_at": 5, "attempt": 0}, "started_by_an_attempt"),
    ({"losses": -1}, "counts_range"),
    ({"held_alone": 2}, "counts_range"),
    ({"completion_tokens": -1}, "usage_range"),
    ({"durability": "attached"}, "request_iff_not_attached"),
    ({"request": None, "request_checksum": None}, "request_iff_not_attached"),
    ({"request_checksum": None}, "request_has_checksum"),
    ({"tags": "{"}, "tags_are_json"),
    ({"attempt_timeout_ms": 0}, "timeout_range"),
    ({"keep_ms": -1}, "keep_range"),
    ({"keep_ms": 5, "keep_until": 6}, "kept_from_its_end"),
    ({"keep_ms": 5, "state": "completed", "finalized_at": 5}, "kept_from_its_end"),
    ({"keep_until": 6, "state": "completed", "finalized_at": 5}, "kept_from_its_end"),
    ({"created_at": "yesterday"}, "cannot store TEXT"),
    ({"model": None}, "NOT NULL"),
]


@pytest.mark.parametrize(("change", "rule"), WRONG, ids=[f"{c}" for c, _ in WRONG])
def test_a_job_that_cannot_be_is_refused(
    driver: sqlite3.Connection, change: dict[str, Any], rule: str
) -> None:
    with pytest.raises(sqlite3.IntegrityError, match=rule):
        insert(driver, "job", JOB | change)


def test_the_states_of_the_domain_and_of_the_table_are_the_same(
    driver: sqlite3.Connection,
) -> None:
    for number, state in enumerate(JobState):
        row = JOB | {"id": f"job_{number}", "state": state.value}
        row["finalized_at"] = 5 if state in FINAL_STATES else None
        row["failure"] = "[]" if state is JobState.FAILED else None
        insert(driver, "job", row)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("state", "cancelled"),
        ("attempt", 2),
        ("finish_reason", "length"),
        ("created_at", 2),
        ("scheduled_at", 2),
        ("available_at", 2),
        ("claimed_at", 2),
        ("deadline_at", 2),
        ("started_at", 2),
        ("finalized_at", 6),
        ("prompt_tokens", 1),
        ("cached_tokens", 1),
        ("completion_tokens", 1),
        ("reasoning_tokens", 1),
    ],
)
def test_nothing_of_how_a_job_ended_ever_changes(
    driver: sqlite3.Connection, column: str, value: object
) -> None:
    insert(driver, "job", JOB | {"state": "completed", "finalized_at": 5, "finish_reason": "stop"})
    with pytest.raises(sqlite3.IntegrityError, match="a final job never changes"):
        driver.execute(f"UPDATE job SET {column} = ?", (value,))


def test_a_failed_job_keeps_its_failure(driver: sqlite3.Connection) -> None:
    insert(driver, "job", JOB | {"state": "failed", "finalized_at": 5, "failure": '["a","b"]'})
    with pytest.raises(sqlite3.IntegrityError, match="a final job never changes"):
        driver.execute("""UPDATE job SET failure = '["c","d"]'""")


def test_a_final_job_is_not_opened_again(driver: sqlite3.Connection) -> None:
    insert(driver, "job", JOB | {"state": "completed", "finalized_at": 5})
    with pytest.raises(sqlite3.IntegrityError, match="a final job never changes"):
        driver.execute("UPDATE job SET state = 'available', finalized_at = NULL")


def test_what_is_not_the_ending_may_change_and_the_row_be_deleted(
    driver: sqlite3.Connection,
) -> None:
    insert(driver, "job", JOB | {"state": "completed", "finalized_at": 5})
    driver.execute("UPDATE job SET tags = '{}', events = 7, state = state, durability = 'stored'")
    driver.execute("DELETE FROM job")


def test_an_attempt_ends_once(driver: sqlite3.Connection) -> None:
    insert(driver, "job", JOB)
    insert(driver, "attempt", ATTEMPT | {"outcome": "lost", "ended_at": 2})
    with pytest.raises(sqlite3.IntegrityError, match="an attempt ends once"):
        driver.execute("UPDATE attempt SET delivered_tokens = 5")


def test_an_attempt_belongs_to_a_job_and_goes_with_it(driver: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        insert(driver, "attempt", ATTEMPT)
    insert(driver, "job", JOB)
    insert(driver, "attempt", ATTEMPT)
    driver.execute("DELETE FROM job")
    assert driver.execute("SELECT count(*) FROM attempt").fetchone() == (0,)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"revision": 2}, "revision_once"),
        ({"revision": 0}, "revision_once"),
        ({"tombstone": 1}, "tombstone_range"),
        ({"kind": "rumour"}, "kind_known"),
        ({"complete": 2}, "flags"),
    ],
)
def test_a_report_that_cannot_be_is_refused(
    driver: sqlite3.Connection, change: dict[str, Any], rule: str
) -> None:
    with pytest.raises(sqlite3.IntegrityError, match=rule):
        insert(driver, "report", REPORT | change)


@pytest.mark.parametrize(
    ("column", "value"),
    [("outcome", "completed"), ("payload", b"{ }"), ("seq", 2), ("subject", "x"), ("complete", 0)],
)
def test_a_report_never_changes(driver: sqlite3.Connection, column: str, value: object) -> None:
    insert(driver, "report", REPORT)
    with pytest.raises(sqlite3.IntegrityError, match="a report never changes"):
        driver.execute(f"UPDATE report SET {column} = ?", (value,))


def test_a_receipt_may_become_a_tombstone_and_never_back(driver: sqlite3.Connection) -> None:
    insert(driver, "report", REPORT | {"kind": "generation"})
    driver.execute("UPDATE report SET tombstone = 1")
    with pytest.raises(sqlite3.IntegrityError, match="a report never changes"):
        driver.execute("UPDATE report SET tombstone = 0")


def test_a_key_belongs_to_a_job_and_goes_with_it(driver: sqlite3.Connection) -> None:
    key = {"tenant": "t", "method": "POST", "path": "/", "key": "k", "digest": "d"}
    row = key | {"job": "job_1", "created_at": 1, "expires_at": 2}
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        insert(driver, "idempotency", row)
    insert(driver, "job", JOB)
    insert(driver, "idempotency", row)
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        insert(driver, "idempotency", row | {"digest": "e"})
    driver.execute("DELETE FROM job")
    assert driver.execute("SELECT count(*) FROM idempotency").fetchone() == (0,)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"mode": "explode"}, "mode_known"),
        ({"state": "paused"}, "state_known"),
        ({"ended_at": 2}, "ended_iff_not_running"),
        ({"state": "failed"}, "ended_iff_not_running"),
        ({"finished": 1, "given_back": 1, "cancelled": 1}, "counts_range"),
        ({"finished": -1}, "counts_range"),
        ({"state": "completed", "ended_at": 2, "finished": 1}, "completed_adds_up"),
    ],
)
def test_a_drain_that_cannot_be_is_refused(
    driver: sqlite3.Connection, change: dict[str, Any], rule: str
) -> None:
    drain = {"id": "drain_1", "mode": "finish", "scope": "server", "state": "running"}
    row: dict[str, Any] = {**drain, "started_at": 1, "timeout_ms": 0, "in_flight": 2}
    with pytest.raises(sqlite3.IntegrityError, match=rule):
        insert(driver, "drain", row | change)


def test_there_is_one_feed(driver: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        insert(driver, "feed", {"id": 2, "last": 0})


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (
            "SELECT id FROM job WHERE state IN ('scheduled', 'retryable') AND scheduled_at <= 5"
            " ORDER BY scheduled_at",
            "SEARCH job USING INDEX job_due",
        ),
        (
            "SELECT id FROM job WHERE finalized_at IS NULL AND deadline_at <= 5",
            "SEARCH job USING INDEX job_deadline",
        ),
        ("SELECT * FROM job WHERE finalized_at IS NULL", "USING INDEX job_deadline"),
        (
            "SELECT id FROM job WHERE finalized_at IS NOT NULL AND finalized_at <= 5"
            " AND keep_until IS NULL ORDER BY finalized_at LIMIT 500",
            "SEARCH job USING INDEX job_finalized",
        ),
        (
            "SELECT id FROM job WHERE keep_until IS NOT NULL AND keep_until <= 5"
            " ORDER BY keep_until LIMIT 500",
            "SEARCH job USING INDEX job_kept",
        ),
        ("DELETE FROM idempotency WHERE job = 'j'", "INDEX idempotency_job (job=?)"),
        (
            "SELECT key FROM idempotency WHERE expires_at <= 5 ORDER BY expires_at LIMIT 500",
            "INDEX idempotency_expires_at (expires_at<?)",
        ),
        ("SELECT * FROM drain WHERE state = 'running' ORDER BY id", "INDEX drain_running"),
        ("SELECT * FROM drain ORDER BY id DESC LIMIT 1", "SCAN drain USING INDEX"),
        (
            "SELECT * FROM job WHERE tenant = 't' AND id < 'x' ORDER BY id DESC LIMIT 5",
            "SEARCH job USING INDEX job_tenant (tenant=? AND id<?)",
        ),
        (
            "SELECT * FROM attempt WHERE generation = 'g' AND outcome IS NULL",
            "USING INDEX attempt_open (generation=?)",
        ),
        ("SELECT max(id) FROM job", "SEARCH job USING COVERING INDEX"),
        ("DELETE FROM command WHERE job = 'j' AND attempt = 1", "INDEX command_job"),
        (
            "SELECT * FROM command WHERE generation = 'g' ORDER BY id",
            "INDEX command_generation (generation=?)",
        ),
        (
            "UPDATE report SET tombstone = 1 WHERE subject = 'g' AND kind = 'generation'"
            " AND revision < 2 AND tombstone = 0",
            "(subject=? AND kind=? AND revision<?)",
        ),
        (
            "SELECT * FROM report WHERE seq > 5 ORDER BY seq",
            "SEARCH report USING INTEGER PRIMARY KEY",
        ),
    ],
)
def test_hot_queries_use_their_index_and_sort_nothing(
    driver: sqlite3.Connection, query: str, index: str
) -> None:
    plan = " ".join(row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {query}"))
    assert index in plan
    assert "TEMP B-TREE" not in plan
