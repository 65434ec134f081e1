"""A real worker process on a real socket, with the scripted engine and this test for a parent."""

import json
import signal
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen

import msgspec
import pytest

from shared.launch import (
    EXIT_ENGINE_LOST,
    EXIT_LOAD_FAILED,
    EXIT_NO_LAUNCH_RECORD,
    EXIT_OK,
    EXIT_ORPHANED,
    EXIT_PROTOCOL,
    LaunchRecord,
    encode_launch,
)
from shared.limits import PROTOCOL_VERSION, REPLAY_WINDOW_FRAMES
from shared.messages import (
    Accepted,
    Answer,
    Exit,
    Failed,
    Finished,
    Heartbeat,
    Hello,
    Loading,
    Ready,
    Refused,
    Stopped,
)
from tests.integration.parent_end import GENERATION, ParentEnd, launch_record, worker_process

SLOW = '{"step_s": 0.01}'


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory whose socket path is short enough."""
    with tempfile.TemporaryDirectory(prefix="mlxq") as directory:
        yield Path(directory)


@pytest.fixture
def parent(place: Path) -> Iterator[ParentEnd]:
    end = ParentEnd(f"ipc://{place}/w.sock")
    end.bind()
    yield end
    end.die()


def log_lines(place: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (place / "log").read_text().splitlines()]


def started(record: LaunchRecord, place: Path) -> AbstractContextManager[Popen[bytes]]:
    return worker_process(encode_launch(record), place / "log")


def exit_code(process: Popen[bytes]) -> int:
    return process.wait(timeout=15)


def test_it_greets_before_it_loads_and_says_how_far_it_is(place: Path, parent: ParentEnd) -> None:
    with started(launch_record(place, '{"load_s": 0.3}'), place) as process:
        hello = parent.wait_for_said(Hello)
        ready = parent.wait_for_said(Ready)
        assert isinstance(parent.said[0], Hello)
        assert (hello.pid, hello.protocol) == (process.pid, PROTOCOL_VERSION)
        assert {"weights"} <= {loading.stage for loading in parent.all_said(Loading)}
        assert (ready.rows, ready.credit.rows_free) == (4, 6)


def test_a_job_runs_to_its_end(place: Path, parent: ParentEnd) -> None:
    with started(launch_record(place), place):
        parent.wait_for_said(Ready)
        parent.run(1, "[[say=grüße 🎉]]")
        finished = parent.wait_for_event(Finished)
        assert parent.text() == "grüße 🎉"
        assert finished.completion_tokens == len("grüße 🎉".encode()) + 1
        assert parent.wait_for_event(Accepted).command == 1


def test_a_running_job_can_be_cancelled_and_the_worker_goes_on(
    place: Path, parent: ParentEnd
) -> None:
    with started(launch_record(place, SLOW), place):
        parent.wait_for_said(Ready)
        parent.run(1, "[[tokens=5000]]")
        parent.wait_for(lambda: len(parent.tokens()) > 3)
        parent.cancel(2)
        stopped = parent.wait_for_event(Stopped)
        assert stopped.completion_tokens == len(parent.tokens())
        parent.cancel(3)
        assert parent.wait_for_event(Answer).code == "not_held"
        parent.run(4, "[[say=on]]", "job_2")
        parent.wait_for_event(Finished)


def test_what_the_template_refuses_is_refused_and_not_logged(
    place: Path, parent: ParentEnd
) -> None:
    with started(launch_record(place), place):
        parent.wait_for_said(Ready)
        parent.run(1, "[[refuse=because secret]]")
        refused = parent.wait_for_event(Refused)
        assert (refused.kind, refused.failure.code) == ("never", "template_error")
        assert "secret" not in (place / "log").read_text()


def test_preparing_too_long_ends_the_job_and_then_the_worker(
    place: Path, parent: ParentEnd
) -> None:
    record = msgspec.structs.replace(launch_record(place), prepare_timeout_s=0.3)
    with started(record, place) as process:
        parent.wait_for_said(Ready)
        parent.run(1, "[[prepare_s=60]]")
        assert parent.wait_for_event(Refused).failure.code == "prepare_timeout"
        parent.run(2, "hi", "job_2")
        assert parent.wait_for_event(Stopped).job == "job_2"
        assert exit_code(process) == EXIT_ENGINE_LOST


def test_no_frame_is_lost_or_doubled_when_the_parent_dies_and_returns(
    place: Path, parent: ParentEnd
) -> None:
    length = 4 * REPLAY_WINDOW_FRAMES
    with started(launch_record(place, '{"step_s": 0.004}'), place):
        parent.wait_for_said(Ready)
        parent.run(1, f"[[tokens={length}]]")
        parent.run(2, f"[[tokens={length}]] other", "job_2")
        for tokens in (10, 60, 150):
            parent.wait_for(lambda wanted=tokens: len(parent.tokens()) >= wanted)
            parent.restart()
        parent.wait_for_event(Finished, 2)
        assert [frame.seq for frame in parent.folded] == list(range(1, len(parent.folded) + 1))
        for job in ("job_1", "job_2"):
            assert len(parent.tokens(job)) == length + 1
        assert sorted({hello.epoch for hello in parent.all_said(Hello)}) == [0, 1, 2, 3]
        assert len(parent.all_said(Ready)) >= 4
        assert parent.all_said(Hello)[1].held[0].attempt == 1


def test_it_works_on_without_a_parent_and_hands_over_what_it_made(
    place: Path, parent: ParentEnd
) -> None:
    with started(launch_record(place, '{"step_s": 0.002}'), place):
        parent.wait_for_said(Ready)
        parent.run(1, "[[tokens=150]]")
        parent.wait_for_event(Accepted)
        before = len(parent.tokens())
        parent.restart()
        parent.welcomes = False
        parent.wait_for(lambda: any(hello.last_made > 150 for hello in parent.all_said(Hello)))
        assert len(parent.tokens()) == before
        parent.welcomes = True
        parent.wait_for_event(Finished)
        assert len(parent.tokens()) == 151


def test_a_full_frame_buffer_pauses_the_engine_until_an_ack(place: Path, parent: ParentEnd) -> None:
    parent.acknowledges = False
    record = msgspec.structs.replace(launch_record(place), frame_buffer_bytes_max=50_000)
    with started(record, place):
        parent.wait_for_said(Ready)
        parent.run(1, "[[tokens=2000]]")
        parent.wait_for(lambda: any(b.state == "paused" for b in parent.all_said(Heartbeat)))
        assert len(parent.tokens()) < 1000
        parent.acknowledges = True
        parent.wait_for_event(Finished)
        assert len(parent.tokens()) == 2001


def test_without_a_parent_for_the_grace_it_leaves(place: Path, parent: ParentEnd) -> None:
    with started(launch_record(place, SLOW, grace_s=0.5), place) as process:
        parent.wait_for_said(Ready)
        parent.run(1, "[[tokens=100000]]")
        parent.wait_for_event(Accepted)
        parent.die()
        assert exit_code(process) == EXIT_ORPHANED


def test_it_leaves_even_if_no_parent_was_ever_there(place: Path) -> None:
    with started(launch_record(place, '{"load_s": 2}', grace_s=0.5), place) as process:
        assert exit_code(process) == EXIT_ORPHANED


@pytest.mark.parametrize(
    "given", [b"", b"\x00\x00", b"\x00\x00\x01\x00half", b"\x00\x00\x00\x01\xc1"]
)
def test_without_a_whole_launch_record_it_leaves_at_once(place: Path, given: bytes) -> None:
    with worker_process(given, place / "log") as process:
        assert exit_code(process) == EXIT_NO_LAUNCH_RECORD


def test_another_protocol_is_refused_naming_both(place: Path) -> None:
    record = msgspec.structs.replace(launch_record(place), protocol=99)
    with started(record, place) as process:
        assert exit_code(process) == EXIT_PROTOCOL
    said = (place / "log").read_text()
    assert "99" in said
    assert str(PROTOCOL_VERSION) in said


def test_a_record_of_another_protocol_need_not_even_decode(place: Path) -> None:
    body = msgspec.msgpack.encode({"protocol": 2, "generation": {"new": "kind"}})
    with worker_process(len(body).to_bytes(4, "big") + body, place / "log") as process:
        assert exit_code(process) == EXIT_PROTOCOL


def test_sigterm_gives_back_what_runs_and_leaves(place: Path, parent: ParentEnd) -> None:
    with started(launch_record(place, SLOW), place) as process:
        parent.wait_for_said(Ready)
        parent.run(1, "[[tokens=100000]]")
        parent.wait_for_event(Accepted)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert parent.wait_for_event(Stopped).reason == "exit"
        assert exit_code(process) == EXIT_OK


def test_exit_of_the_parent_does_the_same(place: Path, parent: ParentEnd) -> None:
    with started(launch_record(place), place) as process:
        parent.wait_for_said(Ready)
        parent.tell(Exit(1, GENERATION))
        assert exit_code(process) == EXIT_OK


def test_sigterm_while_it_loads_is_obeyed(place: Path, parent: ParentEnd) -> None:
    with started(launch_record(place, '{"load_s": 3}'), place) as process:
        parent.wait_for_said(Loading)
        process.send_signal(signal.SIGTERM)
        assert exit_code(process) == EXIT_OK


def test_a_failed_load_leaves_its_reason_in_the_last_line_of_the_log(
    place: Path, parent: ParentEnd
) -> None:
    with started(launch_record(place, '{"load_error": "no such file: model"}'), place) as process:
        assert exit_code(process) == EXIT_LOAD_FAILED
    last = log_lines(place)[-1]
    assert (last["event"], last["reason"]) == ("load failed", "no such file: model")
    assert last["generation"] == GENERATION


def test_a_lost_engine_fails_its_row_and_ends_the_worker(place: Path, parent: ParentEnd) -> None:
    with started(launch_record(place), place) as process:
        parent.wait_for_said(Ready)
        parent.run(1, "[[lost_at=3]]")
        failed = parent.wait_for_event(Failed)
        assert (failed.failure.code, failed.completion_tokens) == ("engine_error", 3)
        assert exit_code(process) == EXIT_ENGINE_LOST


def test_a_stopped_and_woken_worker_is_no_orphan(place: Path, parent: ParentEnd) -> None:
    with started(launch_record(place, SLOW, grace_s=1.0), place) as process:
        parent.wait_for_said(Ready)
        process.send_signal(signal.SIGSTOP)
        heard = len(parent.said)
        with pytest.raises(AssertionError):
            parent.wait_for(lambda: len(parent.said) > heard + 3, timeout=1.5)
        process.send_signal(signal.SIGCONT)
        parent.run(1, "[[say=here]]")
        parent.wait_for_event(Finished)
