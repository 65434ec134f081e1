"""From the first schema to the second and back, with rows of every table."""

import sqlite3
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.storage import schema
from app.storage.connections import create_file, writer_connection

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ROWS = (
    "INSERT INTO job (id, kind, durability, class, class_rank, priority, surface, tenant, model,"
    " state, attempt, max_attempts, created_at, scheduled_at, available_at, claimed_at,"
    " deadline_at, started_at, finalized_at, stop_reason, retry_of, render_version, seed,"
    " finish_reason, prompt_tokens, completion_tokens, events, prompt_digest, tags, settings,"
    " request_checksum, request) VALUES ('job_1', 'chat', 'durable', 'batch', 2, -3, 'chat', 't',"
    " 'm', 'completed', 1, 4, 1, 2, 3, 4, 5, 6, 7, 'cancel', 'job_0', 1, -1, 'stop', 8, 9, 10,"
    """ 'digest', '{"a":"b"}', x'01', 11, x'02')""",
    "INSERT INTO job (id, kind, durability, class, class_rank, priority, surface, tenant, model,"
    " state, attempt, max_attempts, created_at, scheduled_at, available_at, deadline_at,"
    " render_version, seed, settings) VALUES ('job_2', 'chat', 'attached', 'interactive', 0, 0,"
    " 'chat', 't', 'm', 'running', 1, 1, 1, 1, 1, 9, 1, 0, x'')",
    "INSERT INTO generation (id, model, state, parent_epoch, created_at, log_path)"
    " VALUES ('gen_1', 'm', 'ready', 1, 1, 'log')",
    "INSERT INTO attempt (job, number, generation, claimed_at, ended_at, outcome, choice_counts)"
    """ VALUES ('job_1', 1, 'gen_1', 1, 2, 'finished', '{"0":9}')""",
    "INSERT INTO attempt (job, number, generation, claimed_at) VALUES ('job_2', 1, 'gen_1', 1)",
    "INSERT INTO chunk (job, number, first_event, last_event, attempt, choice, first_token,"
    " token_count, checksum, tokens, logprobs, parts)"
    " VALUES ('job_1', 0, 2, 2, 1, 0, 0, 9, 12, x'03', x'04', x'05')",
    "INSERT INTO command (id, generation, job, attempt, kind, created_at, params)"
    " VALUES (7, 'gen_1', 'job_2', 1, 'run_job', 1, x'')",
    "INSERT INTO report (id, revision, seq, kind, subject, outcome, complete, created_at, checksum,"
    " payload) VALUES ('r', 1, 1, 'job', 'job_1', 'completed', 1, 7, 13, x'7b7d')",
    "UPDATE feed SET last = 1",
    "INSERT INTO meta (key, value) VALUES ('store_id', 'store_1')",
)
TABLES = ("job", "generation", "attempt", "chunk", "command", "report", "feed", "meta")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An empty database file."""
    path = tmp_path / "mlxq.db"
    create_file(path)
    return path


@pytest.fixture
def old(path: Path) -> Generator[sqlite3.Connection]:
    """A database of the first schema with rows in every table."""
    driver = writer_connection(path)
    schema.migrate(driver, path, NOW)
    schema.downgrade(driver, "0001")
    for row in ROWS:
        driver.execute(row)
    yield driver
    driver.close()


def content(driver: sqlite3.Connection) -> dict[str, list[dict[str, Any]]]:
    """Every row of the first schema's tables, as they first had columns."""
    driver.row_factory = sqlite3.Row
    rows = {
        table: [dict(row) for row in driver.execute(f"SELECT * FROM {table} ORDER BY 1")]
        for table in TABLES
    }
    driver.row_factory = None
    return rows


def test_rows_of_every_table_survive_and_lie_in_a_backup_too(
    old: sqlite3.Connection, path: Path
) -> None:
    before = content(old)
    assert all(before.values())
    backup = schema.migrate(old, path, NOW)
    after = content(old)
    added = {"attempt_timeout_ms", "keep_ms", "keep_until", "pad"}
    for row in (*after["job"], *after["chunk"]):
        assert [row.pop(name) for name in added & row.keys()].count(None) in (4, 1)
    commands = {(row["job"], row["number"]): row.pop("command") for row in after["attempt"]}
    assert commands == {("job_1", 1): None, ("job_2", 1): 7}
    assert (after.pop("command"), len(before.pop("command"))) == ([], 1)
    for row in after["feed"]:  # the next step counts on
        assert (row.pop("pruned"), row.pop("bytes")) == (0, 2)
    assert after == before
    assert backup is not None
    copy = sqlite3.connect(backup)
    kept = content(copy)
    assert [row["id"] for row in kept.pop("command")] == [7]
    assert kept == before
    assert copy.execute("PRAGMA user_version").fetchone() == (1,)
    copy.close()


def test_references_to_jobs_hold_after_the_step(old: sqlite3.Connection, path: Path) -> None:
    schema.migrate(old, path, NOW)
    old.execute("DELETE FROM job")
    for table in ("attempt", "chunk", "command"):
        assert old.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        old.execute(ROWS[4])


def test_a_final_job_stays_final_over_the_step(old: sqlite3.Connection, path: Path) -> None:
    schema.migrate(old, path, NOW)
    with pytest.raises(sqlite3.IntegrityError, match="a final job never changes"):
        old.execute("UPDATE job SET finalized_at = 8 WHERE id = 'job_1'")


def test_numbers_of_commands_go_on_over_the_step(old: sqlite3.Connection, path: Path) -> None:
    old.execute("DELETE FROM command")
    schema.migrate(old, path, NOW)
    assert old.execute("SELECT seq FROM sqlite_sequence WHERE name = 'command'").fetchone() == (7,)


def test_the_step_back_keeps_what_the_old_schema_can_hold(
    old: sqlite3.Connection, path: Path
) -> None:
    before = content(old)
    schema.migrate(old, path, NOW)
    old.execute("UPDATE job SET keep_ms = 5, keep_until = 9, pad = x'00' WHERE id = 'job_1'")
    old.execute(
        "INSERT INTO idempotency (tenant, method, path, key, digest, job, created_at, expires_at)"
        " VALUES ('t', 'POST', '/', 'k', 'd', 'job_1', 1, 2)"
    )
    old.execute(
        "INSERT INTO drain (id, mode, scope, state, started_at, timeout_ms, in_flight)"
        " VALUES ('drain_1', 'finish', 'server', 'running', 1, 0, 0)"
    )
    schema.downgrade(old, "0001")
    assert content(old) == before
    assert schema.pending(old)


def test_the_step_back_gives_a_command_that_was_not_answered_its_row_again(
    old: sqlite3.Connection, path: Path
) -> None:
    schema.migrate(old, path, NOW)
    high = 3 << 40
    old.execute("UPDATE attempt SET command = ? WHERE job = 'job_2'", (high,))
    schema.downgrade(old, "0006")
    rows = old.execute("SELECT id, generation, job, attempt, kind FROM command").fetchall()
    assert rows == [(high, "gen_1", "job_2", 1, "run_job")]
    assert old.execute("SELECT seq FROM sqlite_sequence WHERE name = 'command'").fetchone() == (
        high,
    )
