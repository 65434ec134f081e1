"""The parent's end of the wire for tests of a real worker process: a ROUTER and the frame rule.

It holds no thread: the test pumps it by waiting for something.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import zmq

from shared.codec import decode_to_parent, encode
from shared.ids import CommandId, GenerationId, JobId, StoreId
from shared.launch import EngineSettings, LaunchRecord
from shared.messages import (
    Ack,
    Cancel,
    Delta,
    Event,
    Frame,
    Hello,
    Identify,
    ParentHeartbeat,
    Replay,
    RunJob,
    Text,
    ToParent,
    ToWorker,
    Welcome,
)
from shared.requests import ChatMessage, ChatRequest
from shared.sampling import SamplingParams

GENERATION = GenerationId("gen_test")
STORE = StoreId("store_test")

_Found = TypeVar("_Found")
_Kind = TypeVar("_Kind", bound=ToParent)
_EventKind = TypeVar("_EventKind", bound=Event)


@dataclass
class ParentEnd:
    """A parent that folds frames in memory: ``folded`` survives a restart, like a store."""

    endpoint: str
    epoch: int = 1
    welcomes: bool = True
    acknowledges: bool = True
    said: list[ToParent] = field(default_factory=list[ToParent])
    folded: list[Frame] = field(default_factory=list[Frame])
    repeated: int = 0
    _context: "zmq.Context[zmq.Socket[bytes]] | None" = None
    _socket: "zmq.Socket[bytes] | None" = None
    _peer: bytes = b""
    _known: set[bytes] = field(default_factory=set[bytes])
    _heartbeat_at: float = 0.0

    # --- its life ------------------------------------------------------------------------------

    def bind(self) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(self.endpoint)
        self._known.clear()

    def die(self) -> None:
        """As a killed process: what was not read is gone."""
        if self._socket is not None and self._context is not None:
            self._socket.close(0)
            self._context.term()
        self._socket = self._context = None

    def restart(self) -> None:
        """The next parent, with the same store."""
        self.die()
        self.epoch += 1
        self.bind()

    # --- talking -------------------------------------------------------------------------------

    def tell(self, *messages: ToWorker) -> None:
        assert self._socket is not None
        try:
            self._socket.send_multipart([self._peer, encode(messages)])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise

    def run(self, command: int, prompt: str, job: str = "job_1", attempt: int = 1) -> None:
        request = ChatRequest((ChatMessage("user", prompt),), SamplingParams(seed=1))
        self.tell(
            RunJob(
                self.epoch, STORE, CommandId(command), JobId(job), attempt, 1_700_000_000, request
            )
        )

    def cancel(self, command: int, job: str = "job_1") -> None:
        self.tell(Cancel(self.epoch, CommandId(command), JobId(job), 1))

    def wait_for(self, predicate: Callable[[], _Found], timeout: float = 15.0) -> _Found:
        """Pump until it is true."""
        deadline = time.monotonic() + timeout
        while not (found := predicate()):
            assert time.monotonic() < deadline, f"not within {timeout} s; heard {self.kinds()}"
            self.pump()
        return found

    def wait_for_said(self, kind: type[_Kind], count: int = 1) -> _Kind:
        self.wait_for(lambda: len(self.all_said(kind)) >= count)
        return self.all_said(kind)[count - 1]

    def wait_for_event(self, kind: type[_EventKind], count: int = 1) -> _EventKind:
        self.wait_for(lambda: len(self.events(kind)) >= count)
        return self.events(kind)[count - 1]

    def pump(self, patience_ms: int = 20) -> None:
        """Read everything there is, and keep up the heartbeat."""
        assert self._socket is not None
        now = time.monotonic()
        if self._known and now >= self._heartbeat_at:
            self._heartbeat_at = now + 0.2
            last = self.folded[-1].seq if self.folded else 0
            self.tell(ParentHeartbeat(self.epoch, last if self.acknowledges else 0, last, 0))
        if not self._socket.poll(patience_ms):
            return
        while True:
            try:
                peer, part = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            self._peer = peer
            for message in decode_to_parent(part):
                self._take(message)

    def _take(self, message: ToParent) -> None:
        self.said.append(message)
        if isinstance(message, Hello):
            self._known.add(self._peer)
            if self.welcomes:
                last = self.folded[-1].seq if self.folded else 0
                self.tell(Welcome(self.epoch, STORE, GENERATION, last))
        elif self._peer not in self._known:
            self.tell(Identify(self.epoch))
        elif isinstance(message, Frame):
            self._fold(message)

    def _fold(self, frame: Frame) -> None:
        due = self.folded[-1].seq + 1 if self.folded else 1
        if frame.seq > due:
            self.tell(Replay(self.epoch, due))
            return
        if frame.seq < due:
            self.repeated += 1
        else:
            self.folded.append(frame)
        if self.acknowledges:
            self.tell(Ack(self.epoch, self.folded[-1].seq))

    # --- looking -------------------------------------------------------------------------------

    def kinds(self) -> list[str]:
        return [type(message).__name__ for message in self.said][-20:]

    def all_said(self, kind: type[_Kind]) -> list[_Kind]:
        return [message for message in self.said if isinstance(message, kind)]

    def events(self, kind: type[_EventKind]) -> list[_EventKind]:
        return [e for frame in self.folded for e in frame.events if isinstance(e, kind)]

    def tokens(self, job: str = "job_1") -> list[int]:
        return [t for d in self.events(Delta) if d.job == job for t in d.tokens]

    def text(self, job: str = "job_1") -> str:
        deltas = [d for d in self.events(Delta) if d.job == job]
        return "".join(p.text for d in deltas for p in d.parts if isinstance(p, Text))


def launch_record(
    directory: Path, script: str = "", *, rows: int = 4, grace_s: float = 30.0
) -> LaunchRecord:
    return LaunchRecord(
        generation=GENERATION,
        store=STORE,
        epoch=1,
        model="scripted",
        endpoint=f"ipc://{directory}/w.sock",
        cache_dir=str(directory),
        engine=EngineSettings(
            engine="scripted", model_path="", rows=rows, prefetch=2, scripted=script
        ),
        heartbeat_interval_s=0.2,
        orphan_grace_s=grace_s,
    )


@contextmanager
def worker_process(given: bytes, log: Path) -> "Generator[subprocess.Popen[bytes]]":
    """A worker, with these bytes on its standard input."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "worker"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
    assert process.stdin is not None
    process.stdin.write(given)
    process.stdin.close()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
