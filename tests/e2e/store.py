"""What the server's database says, read beside it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from app.storage.encoding import failure_from_row
from tests.waiting import wait_until

Row = dict[str, Any]
FINAL = ("completed", "failed", "cancelled")


class Store:
    """The database file, opened for each question and never written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        """All rows of a query."""
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql, parameters)]

    def jobs(self) -> list[Row]:
        """Every job, oldest first."""
        return self.rows("SELECT * FROM job ORDER BY id")

    def job(self, job: str) -> Row:
        """The job with this id."""
        (row,) = self.rows("SELECT * FROM job WHERE id = ?", job)
        return row

    def count(self) -> int:
        """How many jobs there are."""
        return len(self.jobs())

    def submitted_after(self, count: int) -> str:
        """The id of the one job that is submitted after the first ``count``, once it is."""
        wait_until(lambda: self.count() > count, 10, "the next job")
        (job,) = self.jobs()[count:]
        return job["id"]

    def ended(self, job: str, timeout: float = 10) -> Row:
        """The job with this id, once it has ended."""
        wait_until(lambda: self.job(job)["state"] in FINAL, timeout, f"the end of {job}")
        return self.job(job)

    def attempts(self, job: str) -> list[Row]:
        """The attempts of a job."""
        return self.rows("SELECT * FROM attempt WHERE job = ? ORDER BY number", job)

    def reports(self, subject: str) -> list[Row]:
        """The reports about a job or a generation, with their payloads decoded."""
        rows = self.rows("SELECT * FROM report WHERE subject = ? ORDER BY revision", subject)
        return [{**row, "payload": json.loads(row["payload"])} for row in rows]

    def commands(self) -> list[Row]:
        """Commands that no worker has answered."""
        return self.rows("SELECT * FROM command")


def job_id(answer_id: str) -> str:
    """The job behind the id of an answer."""
    return answer_id.replace("chatcmpl-", "job_")


def failure_code(job: Row) -> str | None:
    """The code a job failed with."""
    failure = failure_from_row(job["failure"])
    return None if failure is None else failure.code


def usage(row: Row) -> tuple[int, int]:
    """Prompt and completion tokens of a job's row or of an answer's usage."""
    return row["prompt_tokens"], row["completion_tokens"]
