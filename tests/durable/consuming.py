"""A consumer in a process of its own, that is killed between reading and acknowledging.

It books each report under (id, revision) in a database, in one transaction, and says how often it
was shown one that it had booked already.
"""

import json
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from typing_extensions import override

from tests.durable.place import Place
from tests.waiting import wait_until

BOOKING = """
import json, sqlite3, sys
report = json.load(sys.stdin)
books = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
books.execute("BEGIN IMMEDIATE")
key = (report["id"], report["revision"])
fresh = books.execute(
    "INSERT INTO booked VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
    (*key, report["epoch"], report["seq"], json.dumps(report)),
).rowcount
books.execute("INSERT INTO shown VALUES (?, ?, ?)", (*key, fresh))
books.execute("COMMIT")
"""
"""What is run for each report."""


class Books:
    """What was booked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as books:
            books.executescript(
                "PRAGMA journal_mode = WAL;"
                "CREATE TABLE booked"
                " (id, revision, epoch, seq, report, PRIMARY KEY (id, revision));"
                "CREATE TABLE shown (id, revision, fresh)"
            )

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with closing(sqlite3.connect(self.path, timeout=30)) as books:
            return books.execute(sql).fetchall()

    def reports(self) -> list[dict[str, Any]]:
        """Every report that was booked, in the order of the feed."""
        return [json.loads(text) for (text,) in self.rows("SELECT report FROM booked ORDER BY seq")]

    def shown_again(self) -> int:
        """How often a report came that was booked already."""
        return self.rows("SELECT count(*) FROM shown WHERE NOT fresh")[0][0]


class Booker(threading.Thread):
    """Runs ``mlxq reports --exec`` over and over, on whichever server there is, until told to end;
    ``killed`` ends the process of the moment with SIGKILL."""

    def __init__(self, place: Place, books: Books) -> None:
        super().__init__(daemon=True, name="booker")
        self._place = place
        self._books = books
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self.kills = 0
        self.start()

    @override
    def run(self) -> None:
        while not self._over.is_set():
            if self._place.up.wait(0.2):
                self._process = self._spawn()
                self._process.wait()

    def kill(self) -> None:
        """kill -9, wherever it is."""
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()
            self.kills += 1

    def booked(self, count: int, timeout: float = 60) -> list[dict[str, Any]]:
        """What was booked, once it is so many."""
        wait_until(lambda: len(self._books.reports()) >= count, timeout, f"{count} reports")
        return self._books.reports()

    def end(self) -> None:
        """No more of it."""
        self._over.set()
        if self._process is not None:
            self._process.kill()
        self.join(20)

    def _spawn(self) -> "subprocess.Popen[bytes]":
        booking = self._books.path.with_name("booking.py")
        booking.write_text(BOOKING)
        command = f"{sys.executable} {booking} {self._books.path}"
        said = ("reports", "--url", self._place.server.base, "--give-up-after", "1")
        reading = ("--consumer", "booker", "--from", "earliest", "--follow", "--exec", command)
        return subprocess.Popen(
            [sys.executable, "-m", "app.cli.main", *said, *reading],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
