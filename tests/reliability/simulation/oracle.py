"""What must have come out, whatever happened on the way."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from app.domain.job import FINAL_STATES, JobState
from app.storage.verify import verify_file
from shared.failures import Failure
from tests.reliability.simulation.clients import Client
from tests.reliability.simulation.scripted import undisturbed

BY_DRAIN: Final = frozenset({"draining", "parent_lost"})
"""How work may end that a drain meets and that does not outlive it."""


def assert_in_order(path: Path, clients: Sequence[Client]) -> None:
    """The store's invariants, and each client's own."""
    violations = verify_file(path).violations
    assert violations == [], violations
    with closing(sqlite3.connect(path)) as store:
        store.row_factory = sqlite3.Row
        _assert_one_job_a_key(store, clients)
        for client in clients:
            if client.job is not None:
                _assert_true(store, client)
        open_jobs = store.execute("SELECT count(*) FROM job WHERE finalized_at IS NULL")
        assert open_jobs.fetchone()[0] == 0, "jobs are left open"


def _assert_one_job_a_key(store: sqlite3.Connection, clients: Sequence[Client]) -> None:
    tags = [row["tags"] for row in store.execute("SELECT tags FROM job")]
    for client in clients:
        made = sum(f'"{client.number}"' in tag for tag in tags)
        assert made <= 1 or not client.wish.keyed, f"client {client.number} has {made} jobs"


def _assert_true(store: sqlite3.Connection, client: Client) -> None:
    row = store.execute("SELECT * FROM job WHERE id = ?", (client.job,)).fetchone()
    assert row is not None, f"accepted job {client.job} of client {client.number} is gone"
    state = JobState(row["state"])
    assert state in FINAL_STATES, f"{client.job} is {state}"
    code = msgspec.json.decode(row["failure"], type=Failure).code if row["failure"] else None
    _assert_allowed(client, state, code)
    _assert_said(store, client, row)
    _assert_shown(client, row)
    reports = store.execute("SELECT outcome FROM report WHERE subject = ?", (client.job,))
    assert [report["outcome"] for report in reports] == [state], client.job


def _assert_allowed(client: Client, state: JobState, code: str | None) -> None:
    hits = client.machine.world.hits
    drained = hits["fault drain"] or hits["fault parent terminated"]
    what = (client.number, client.wish, client.job, state, code)
    if state is JobState.CANCELLED:
        assert client.asked_to_end or drained, what
    elif state is JobState.FAILED:
        codes = client.wish.codes | (BY_DRAIN if drained else frozenset[str]())
        assert code in codes, what
    else:
        assert "[[crash_at" not in client.wish.content, what


def _assert_said(store: sqlite3.Connection, client: Client, row: sqlite3.Row) -> None:
    """Tokens and counts are those of the undisturbed answer, or the beginning of it."""
    said = undisturbed(client.wish.content, client.wish.seed)
    chunks = store.execute("SELECT tokens FROM chunk WHERE job = ? ORDER BY number", (row["id"],))
    tokens = [
        t for chunk in chunks for t in msgspec.msgpack.decode(chunk["tokens"], type=list[int])
    ]
    count = row["completion_tokens"]
    if client.journaled:
        assert tuple(tokens) == said.tokens[: len(tokens)], client.job
        assert count == len(tokens), (client.job, count, len(tokens))
    assert row["prompt_tokens"] in (0, said.prompt_tokens), client.job
    if row["state"] == JobState.COMPLETED:
        assert count == len(said.tokens), (client.job, count, len(said.tokens))


def _assert_shown(client: Client, row: sqlite3.Row) -> None:
    said = undisturbed(client.wish.content, client.wish.seed)
    assert said.text.startswith(client.shown), (client, said.text)
    ending = client.ending
    if ending is None:
        assert not (client.journaled and client.wish.follows), f"{client.job}: no end was shown"
        return
    assert (ending.state, ending.usage.completion_tokens) == (
        row["state"],
        row["completion_tokens"],
    ), client.job
    if client.journaled:
        assert client.next_seq == row["events"], (client.job, client.next_seq, row["events"])
    if ending.state is JobState.COMPLETED:
        assert client.shown == said.text, client.job
