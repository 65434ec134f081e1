"""What the writer has acknowledged, and whether a store still holds it."""

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from app.storage.verify import verify_file
from shared.ids import GenerationId
from tests.integration.storage.making import job_id

_TOKENS = msgspec.msgpack.Decoder(list[int])


class Lost(AssertionError):
    """Something that was acknowledged is not there, or something is there that never was."""


def token(number: int, position: int) -> int:
    """The n-th job's token there: nothing else may ever be read back."""
    return number * 10_000 + position


@dataclass(slots=True)
class Promise:
    """What was acknowledged of one job."""

    inserted: bool = False
    attempts: int = 0
    tokens: int = 0
    stopping: bool = False
    ended: str | None = None
    leaving: bool = False
    """It was asked to be deleted: it may be gone."""
    gone: bool = False


@dataclass(slots=True)
class Ledger:
    """What was acknowledged of a whole store."""

    jobs: dict[int, Promise] = field(default_factory=dict[int, Promise])
    frames: dict[GenerationId, int] = field(default_factory=dict[GenerationId, int])
    receipts: set[GenerationId] = field(default_factory=set[GenerationId])
    acked: int = 0
    """How far the consumer has come."""
    epoch: int = 0
    """Of the last parent that was let in."""
    acknowledgements: int = 0
    cut_in: Counter[str] = field(default_factory=Counter[str])
    """Files that were being written when the power failed."""

    def of(self, number: int) -> Promise:
        """What was promised of this job."""
        return self.jobs.setdefault(number, Promise())

    def check(self, path: Path) -> None:
        """All of it is there, and every invariant holds.

        Raises:
            Lost: it is not so.
        """
        found = verify_file(path).violations
        _need(not found, f"{found[:3]}")
        with closing(sqlite3.connect(path)) as driver:
            driver.row_factory = sqlite3.Row
            self._check_store(driver)
            for number, promise in self.jobs.items():
                _check_job(driver, number, promise)

    def _check_store(self, driver: sqlite3.Connection) -> None:
        ((epoch,),) = driver.execute("SELECT value FROM meta WHERE key = 'parent_epoch'").fetchall()
        _need(int(epoch) >= self.epoch, f"the parents' epoch fell from {self.epoch} to {epoch}")
        cursors = dict(driver.execute("SELECT id, last_seq FROM generation").fetchall())
        for generation, seq in self.frames.items():
            _need(cursors.get(generation, -1) >= seq, f"frame {seq} of {generation}")
        told = {row["subject"] for row in driver.execute("SELECT subject FROM report")}
        _need(self.receipts <= told, f"receipts of {self.receipts - told}")
        acked = [row["acked"] for row in driver.execute("SELECT acked FROM consumer")]
        _need(self.acked <= max(acked, default=0), f"acknowledgement {self.acked}, not {acked}")


def _check_job(driver: sqlite3.Connection, number: int, promise: Promise) -> None:
    row = driver.execute("SELECT * FROM job WHERE id = ?", (job_id(number),)).fetchone()
    if row is None:
        _need(promise.leaving or not promise.inserted, f"job {number}")
        return
    _need(not promise.gone, f"job {number} came back")
    _need(row["attempt"] >= promise.attempts, f"attempt {promise.attempts} of {number}")
    _need(row["stop_reason"] is not None or not promise.stopping, f"the stop of {number}")
    said = _said(driver, number)
    _need(len(said) >= promise.tokens, f"{promise.tokens} tokens of {number}, not {len(said)}")
    _need(said == [token(number, n) for n in range(len(said))], f"other tokens of {number}")
    if promise.ended is not None:
        _need(row["state"] == promise.ended, f"the end of {number}: {row['state']}")
        _check_report(driver, number, promise.ended)


def _check_report(driver: sqlite3.Connection, number: int, state: str) -> None:
    reports = driver.execute("SELECT outcome FROM report WHERE subject = ?", (job_id(number),))
    outcomes = [row["outcome"] for row in reports]
    _need(outcomes == [state], f"one report of {number}, {state}: {outcomes}")


def _said(driver: sqlite3.Connection, number: int) -> list[int]:
    rows: list[Any] = driver.execute(
        "SELECT tokens FROM chunk WHERE job = ? ORDER BY number", (job_id(number),)
    ).fetchall()
    return [one for row in rows for one in _TOKENS.decode(row["tokens"])]


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise Lost(what)
