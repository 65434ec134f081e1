"""A worker that obeys a newer parent does nothing for an older one, however late its word comes."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from shared.ids import CommandId, JobId
from shared.launch import encode_launch
from shared.messages import Accepted, Cancel, Exit, Finished, Heartbeat, Preempt, Ready, RunJob
from shared.requests import ChatMessage, ChatRequest
from shared.sampling import SamplingParams
from tests.integration.parent_end import (
    GENERATION,
    STORE,
    ParentEnd,
    launch_record,
    worker_process,
)

CHAT = ChatRequest((ChatMessage("user", "[[tokens=60]]"),), SamplingParams(seed=1))


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


def test_late_commands_of_an_older_parent_change_nothing(place: Path, parent: ParentEnd) -> None:
    record = encode_launch(launch_record(place, '{"step_s": 0.01}'))
    with worker_process(record, place / "log") as process:
        parent.wait_for_said(Ready)
        older = parent.epoch
        run = RunJob(older, STORE, CommandId(1), JobId("job_1"), 1, 1_700_000_000, CHAT)
        parent.tell(run)
        parent.wait_for(lambda: len(parent.tokens()) > 3)
        parent.restart()
        parent.wait_for_said(Ready, 2)
        parent.tell(
            msgspec.structs.replace(run, command=CommandId(2), job=JobId("job_2")),
            msgspec.structs.replace(run, command=CommandId(3), attempt=2),
            Cancel(older, CommandId(4), JobId("job_1"), 1),
            Preempt(older, CommandId(5), JobId("job_1"), 1),
            Exit(older, GENERATION, "of an older parent"),
        )
        finished = parent.wait_for_event(Finished)
        assert (finished.job, finished.attempt, finished.completion_tokens) == ("job_1", 1, 61)
        assert len(parent.events(Accepted)) == 1
        assert process.poll() is None
        parent.wait_for(lambda: parent.all_said(Heartbeat)[-1].rows == 0)
        beat = parent.all_said(Heartbeat)[-1]
        assert (beat.last_command, beat.pending) == (1, 0)
