"""Whoever else connects to the workers' socket changes nothing, and is counted."""

import os
from collections.abc import Iterator, Sequence

import pytest
import zmq

from shared.codec import decode_to_worker, encode
from shared.ids import CommandId, GenerationId, JobId
from shared.limits import PROTOCOL_VERSION
from shared.messages import (
    Credit,
    Delta,
    Exit,
    Finished,
    Frame,
    Heartbeat,
    Hello,
    Identify,
    Ready,
    ToParent,
)
from tests.e2e.calls import Call, text_of
from tests.e2e.server import RunningServer
from tests.waiting import wait_until

UNKNOWN = GenerationId("gen_00000000000000000000000000000000")
CREDIT = Credit(rows_free=100, kv_bytes_free=1, last_command=0)
WAIT_MS = 5_000


@pytest.fixture
def stranger(scripted: RunningServer) -> Iterator["zmq.Socket[bytes]"]:
    """A connection to the server's socket that no worker has."""
    (path,) = scripted.site.runtime_dir.rglob("w.sock")
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, WAIT_MS)
        socket.connect(f"ipc://{path}")
        yield socket


def say(stranger: "zmq.Socket[bytes]", *messages: ToParent) -> None:
    stranger.send(encode(messages))


def hello(generation: GenerationId) -> Hello:
    return Hello(PROTOCOL_VERSION, generation, os.getpid(), 1, 1, 0)


def frame(generation: GenerationId, job: JobId) -> Frame:
    events = (Delta(job, 1, 0, 0, (1, 2, 3)), Finished(job, 1, 3, 0))
    return Frame(generation, 1, CREDIT, events)


def answers(scripted: RunningServer) -> bool:
    return scripted.chat("hello").status_code == 200


def test_garbage_is_counted_and_dropped(
    scripted: RunningServer, stranger: "zmq.Socket[bytes]"
) -> None:
    before = scripted.metric("malformed_messages_total")
    garbage: Sequence[list[bytes]] = [
        [b""],
        [b"garbage"],
        [os.urandom(100_000)],
        [b"\x91\xa5hello"],
        [b"\x91" * 50_000],
        [b"one", b"two", b"three"],
        [b"", b""],
        [encode([Exit(1, UNKNOWN)])],
    ]
    for parts in garbage:
        stranger.send_multipart(parts)
    wait_until(
        lambda: scripted.metric("malformed_messages_total") == before + len(garbage),
        what="the counting of garbage",
    )
    assert answers(scripted)


def test_an_unknown_worker_is_told_to_exit(
    scripted: RunningServer, stranger: "zmq.Socket[bytes]"
) -> None:
    before = scripted.metric("unknown_workers_total")
    say(stranger, hello(UNKNOWN))
    (told,) = decode_to_worker(stranger.recv())
    assert isinstance(told, Exit)
    assert told.generation == UNKNOWN
    assert scripted.metric("unknown_workers_total") == before + 1
    assert answers(scripted)


def test_whoever_does_not_greet_is_asked_who_they_are(
    scripted: RunningServer, stranger: "zmq.Socket[bytes]"
) -> None:
    say(stranger, Heartbeat(UNKNOWN, 0, CommandId(0), 0, 0, 0))
    (told,) = decode_to_worker(stranger.recv())
    assert isinstance(told, Identify)
    say(stranger, Ready(UNKNOWN, 4, 100, "f", CREDIT), frame(UNKNOWN, JobId("job_1")))
    assert {type(message) for message in decode_to_worker(stranger.recv())} == {Identify}
    assert answers(scripted)


def test_a_frame_in_the_name_of_a_running_worker_changes_no_job(
    scripted: RunningServer, stranger: "zmq.Socket[bytes]"
) -> None:
    answers(scripted)
    (row,) = scripted.store.rows("SELECT id FROM generation WHERE state = 'ready'")
    before = scripted.store.count()
    content = "[[tokens=40]] [[sleep_at=4]] [[sleep_s=0.5]]"
    with Call(scripted, content, seed=1) as call:
        job = JobId(scripted.store.submitted_after(before))
        say(stranger, frame(GenerationId(row["id"]), job))
        (told,) = decode_to_worker(stranger.recv())
        assert isinstance(told, Identify)
        text = text_of(list(call.events()))
    ended = scripted.store.ended(job)
    assert (ended["state"], ended["completion_tokens"]) == ("completed", 41)
    alone = scripted.chat(content, seed=1).json()
    assert alone["choices"][0]["message"]["content"] == text


def test_nobody_else_may_open_the_socket_the_store_or_the_logs(scripted: RunningServer) -> None:
    answers(scripted)
    (socket,) = scripted.site.runtime_dir.rglob("w.sock")
    logs = scripted.site.data_dir / "logs"
    for private in (socket.parent, scripted.store.path, logs, *logs.iterdir()):
        assert private.stat().st_mode & 0o077 == 0, private
    assert list(socket.parent.iterdir()) == [socket]
