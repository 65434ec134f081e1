"""A webhook receiver in a process of its own, that answers what it likes and is killed.

It books each event under its id in a database, and dies now and then between that and its answer.
"""

import json
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from standardwebhooks.webhooks import Webhook
from typing_extensions import override

from tests.durable.place import Place
from tests.waiting import wait_until

RECEIVING = """
import os, random, sqlite3, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

path, port, unkind = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])

def book(headers, body):
    with sqlite3.connect(path, timeout=30) as books:
        key = headers["webhook-id"]
        fresh = books.execute(
            "INSERT INTO booked VALUES (?, ?) ON CONFLICT DO NOTHING", (key, body)
        ).rowcount
        signature = headers["webhook-timestamp"], headers["webhook-signature"]
        books.execute("INSERT INTO came VALUES (?, ?, ?, ?, ?)", (key, *signature, body, fresh))
    books.close()

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 2

    def do_POST(self):
        size = int(self.headers["content-length"])
        body = self.rfile.read(size)
        if len(body) < size:  # the server died in the midst of it: nothing was received
            self.close_connection = True
            return None
        mood = random.random() / unkind if unkind else 1
        if mood < 0.3:
            return self.answer(500)
        if mood < 0.5:
            return self.answer(302)
        if mood < 0.65:
            self.rfile.read(1)  # until the other side gives up
            self.close_connection = True
            return None
        book(self.headers, body)
        if mood < 0.8:
            os._exit(9)
        return self.answer(200)

    def answer(self, status):
        self.send_response(status)
        self.send_header("location", "/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

ThreadingHTTPServer.allow_reuse_address = True
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
"""What receives: a share ``unkind`` of what comes is not simply taken."""

TYPES = [
    *(f"job.{outcome}" for outcome in ("completed", "failed", "cancelled")),
    *(f"generation.{outcome}" for outcome in ("sealed", "snapshot", "crashed")),
    *(f"drain.{outcome}" for outcome in ("completed", "failed", "cancelled")),
]

HOOKED = {"webhooks.allowed_networks": "loopback", "webhooks.timeout_s": 0.5}
"""Settings of a server that may send to it."""

SOON = (
    "set app.domain.webhook_retrying:FIRST_S 0.05",
    "set app.domain.webhook_retrying:LONGEST_S 0.2",
)
"""So that the next try is not waited for."""


class Receiver(threading.Thread):
    """Keeps a receiver running on one port until it is told to end."""

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True, name="receiver")
        self.path = root / "received.db"
        self.unkind = 0.6
        self.secret = ""
        self.kills = 0
        self._script = root / "receiving.py"
        self._script.write_text(RECEIVING)
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        with closing(sqlite3.connect(self.path)) as books:
            books.executescript(
                "PRAGMA journal_mode = WAL;"
                "CREATE TABLE booked (id PRIMARY KEY, body);"
                "CREATE TABLE came (id, timestamp, signature, body, fresh)"
            )
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port: int = free.getsockname()[1]
        self.start()

    @override
    def run(self) -> None:
        while not self._over.is_set():
            words = [str(self._script), str(self.path), str(self.port), str(self.unkind)]
            self._process = subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL)
            self._process.wait()

    def register(self, place: Place) -> str:
        """Be sent everything from the beginning on; the endpoint's id."""
        url = f"http://127.0.0.1:{self.port}/hook"
        body = {"name": "books", "url": url, "event_types": TYPES, "from": "earliest"}
        answer = place.post("/v1/webhook_endpoints", body)
        assert answer.status_code == 200, answer.text
        self.secret = answer.json()["signing_secret"]
        return answer.json()["id"]

    def kill(self) -> None:
        """kill -9, wherever it is."""
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()
            self.kills += 1

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with closing(sqlite3.connect(self.path, timeout=30)) as books:
            return books.execute(sql).fetchall()

    def events(self) -> list[dict[str, Any]]:
        """Every event that was booked."""
        return [json.loads(body) for (body,) in self.rows("SELECT body FROM booked")]

    def end(self) -> None:
        """No more of it."""
        self._over.set()
        if self._process is not None:
            self._process.kill()
        self.join(20)


def wait_for_all(place: Place, receiver: Receiver) -> None:
    """Wait until all that stands in the feed was booked. It takes everything from now on."""
    receiver.unkind = 0.0
    receiver.kill()

    def missing() -> set[str]:
        return wanted(place) - {event["id"] for event in receiver.events()}

    wait_until(lambda: not missing(), 90, "all reports at the receiver")


def wanted(place: Place) -> set[str]:
    """The ids of the events that tell of the feed as it stands."""
    rows = place.store.rows("SELECT id, revision FROM report WHERE tombstone = 0")
    suffixes = {row["id"]: row["revision"] for row in rows}
    return {f"evt_{name}" + (f".r{n}" if n > 1 else "") for name, n in suffixes.items()}


def assert_received(place: Place, receiver: Receiver) -> None:
    """Each ending was booked once; whatever came again came as it was, and signed."""
    events = receiver.events()
    jobs = [event["data"]["id"] for event in events if event["type"].startswith("job.")]
    ended = place.store.rows("SELECT subject FROM report WHERE kind = 'job'")
    assert sorted(jobs) == sorted(row["subject"] for row in ended)
    for name, bodies in receiver.rows("SELECT id, count(DISTINCT body) FROM came GROUP BY id"):
        assert bodies == 1, name
    signer = Webhook(receiver.secret)
    for name, timestamp, signature, body in receiver.rows(
        "SELECT id, timestamp, signature, body FROM came ORDER BY rowid DESC LIMIT 20"
    ):
        headers = {"webhook-id": name, "webhook-timestamp": timestamp}
        signer.verify(body, {**headers, "webhook-signature": signature})
