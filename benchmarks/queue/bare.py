"""What is left of a drain when nothing of the product is there: the machine's own measure.

A prototype of the same shape: one process claims queued jobs, sends them over ZeroMQ in lists to a
worker process, and ends what comes back, fenced and with a row for the world in the same
transaction, synchronous FULL, one writer thread. No journal, attempts, tenants, reports, followers
or recovery. What the goals of the drain were taken from was such a prototype, on another machine
(``RATE``, ``CPU_US``): so how far this one comes here says what the goals come to here.
"""

import asyncio
import queue
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import zmq
from typing_extensions import override

RATE: Final = 32_600
"""Jobs a second of the prototype where the goals come from, at this credit."""

CPU_US: Final = 23
"""Its processor time a job, there."""

CREDIT: Final = 64
_SCHEMA: Final = """
CREATE TABLE job (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX claim ON job (id) WHERE state = 0;
CREATE TABLE outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, job INTEGER UNIQUE, body BLOB);
"""
_BODY: Final = b"x" * 300

Batches: TypeAlias = list[list[int]]
"""Ids of jobs, in the company they came in."""


@dataclass(frozen=True)
class Bare:
    """What the prototype came to."""

    rate: float
    cpu_us: float


def measure(place: Path, jobs: int) -> Bare:
    """Drain so many jobs."""
    place.mkdir(parents=True, exist_ok=True)
    path, socket = place / "bare.db", f"ipc://{place / 'bare.sock'}"
    store = sqlite3.connect(path, isolation_level=None)
    store.executescript("PRAGMA journal_mode = WAL; " + _SCHEMA)
    store.execute("BEGIN")
    store.executemany("INSERT INTO job VALUES (?, 0, ?)", [(n, _BODY) for n in range(jobs)])
    store.execute("COMMIT")
    store.close()
    worker = subprocess.Popen([sys.executable, "-m", __name__, socket])
    try:
        return asyncio.run(_Parent(path, socket, jobs).drain())
    finally:
        worker.kill()
        worker.wait()


class _Writer(threading.Thread):
    """Commits whatever waits, together."""

    def __init__(self, path: Path, committed: Callable[[Batches, Batches], None]) -> None:
        super().__init__(daemon=True)
        self._path, self._committed = path, committed
        self.orders: queue.SimpleQueue[tuple[str, list[int]] | None] = queue.SimpleQueue()

    @override
    def run(self) -> None:
        store = sqlite3.connect(self._path, isolation_level=None)
        store.execute("PRAGMA synchronous = FULL")
        while (order := self.orders.get()) is not None:
            waiting = [order]
            while not self.orders.empty() and (more := self.orders.get()) is not None:
                waiting.append(more)
            claims = [ids for what, ids in waiting if what == "claim"]
            ends = [ids for what, ids in waiting if what == "end"]
            store.execute("BEGIN IMMEDIATE")
            for ids in claims:
                sql = "UPDATE job SET state = 1 WHERE id = ? AND state = 0"
                store.executemany(sql, [(job,) for job in ids])
            for ids in ends:
                sql = "UPDATE job SET state = 2 WHERE id = ? AND state = 1"
                store.executemany(sql, [(job,) for job in ids])
                sql = "INSERT INTO outbox (job, body) VALUES (?, ?)"
                store.executemany(sql, [(job, b"{}") for job in ids])
            store.execute("COMMIT")
            self._committed(claims, ends)
        store.close()


class _Parent:
    def __init__(self, path: Path, socket: str, jobs: int) -> None:
        self._path, self._jobs = path, jobs
        self._socket: zmq.Socket[bytes] = zmq.Context().socket(zmq.ROUTER)
        self._socket.bind(socket)
        self._identity = b""
        self._next = self._ended = 0

    async def drain(self) -> Bare:
        loop = asyncio.get_running_loop()
        self._done = asyncio.Event()

        def committed(claims: Batches, ends: Batches) -> None:
            loop.call_soon_threadsafe(self._committed, claims, ends)

        self._writer = _Writer(self._path, committed)
        self._writer.start()
        loop.add_reader(self._socket.fileno(), self._receive)
        self._receive()
        await self._done.wait()
        took, spent = time.perf_counter() - self._began, time.process_time() - self._spent
        loop.remove_reader(self._socket.fileno())
        self._writer.orders.put(None)
        self._writer.join()
        self._socket.close(0)
        return Bare(self._jobs / took, 1e6 * spent / self._jobs)

    def _receive(self) -> None:
        while True:
            try:
                identity, body = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            ids = msgspec.msgpack.decode(body, type=list[int])
            if ids:
                self._writer.orders.put(("end", ids))
                self._claim(len(ids))
            else:  # it is there
                self._identity = identity
                self._began, self._spent = time.perf_counter(), time.process_time()
                self._claim(CREDIT)

    def _claim(self, count: int) -> None:
        ids = list(range(self._next, min(self._jobs, self._next + count)))
        self._next += len(ids)
        if ids:
            self._writer.orders.put(("claim", ids))

    def _committed(self, claims: Batches, ends: Batches) -> None:
        for ids in claims:
            body = msgspec.msgpack.encode([(job, _BODY) for job in ids])
            self._socket.send_multipart((self._identity, body))
        self._ended += sum(map(len, ends))
        if self._ended == self._jobs:
            self._done.set()
        self._receive()


def _work(socket: str) -> None:
    dealer: zmq.Socket[bytes] = zmq.Context().socket(zmq.DEALER)
    dealer.connect(socket)
    dealer.send(msgspec.msgpack.encode([]))
    while True:
        jobs = msgspec.msgpack.decode(dealer.recv(), type=list[tuple[int, bytes]])
        dealer.send(msgspec.msgpack.encode([job for job, _ in jobs]))


if __name__ == "__main__":
    _work(sys.argv[1])
