"""Loading: what is said meanwhile, what ends it early, where temporary files go."""

import os
import stat
from pathlib import Path
from queue import SimpleQueue

import msgspec
import pytest

from shared.launch import EngineSettings
from shared.messages import Cancel, Exit, Loading
from tests.unit.worker.link.talk import launch_record
from tests.unit.worker.loop.bench import GENERATION, cancel
from worker.inbox import Inbox, Orphaned, Terminated, ToLoop
from worker.loading import LeaveWhileLoading, Loader, keep_temporary_files_in
from worker.outside import Outside
from worker.vitals import Vitals


def loader(inbox: Inbox, said: list[Loading]) -> Loader:
    engine = EngineSettings(engine="scripted", model_path="")
    record = msgspec.structs.replace(launch_record(), engine=engine)
    return Loader(record, inbox, said.append, Vitals(), Outside())


def test_it_says_how_far_it_is() -> None:
    said: list[Loading] = []
    loaded = loader(SimpleQueue(), said).load()
    assert loaded.info.context_tokens > 0
    assert said[0].stage == "weights"
    assert (said[-1].stage, said[-1].done, said[-1].total) == ("warm_up", 1, 1)


@pytest.mark.parametrize(
    ("message", "orphaned"),
    [
        pytest.param(Terminated(), False, id="sigterm"),
        pytest.param(Exit(1, GENERATION), False, id="exit"),
        pytest.param(Orphaned(), True, id="orphaned"),
    ],
)
def test_a_stop_ends_it_early(message: ToLoop, orphaned: bool) -> None:
    inbox: Inbox = SimpleQueue()
    inbox.put((cancel(1), message))
    with pytest.raises(LeaveWhileLoading) as leave:
        loader(inbox, []).load()
    assert leave.value.orphaned is orphaned


def test_commands_that_came_meanwhile_wait_for_the_loop_in_order() -> None:
    inbox: Inbox = SimpleQueue()
    for number in (1, 2, 3):
        inbox.put((cancel(number),))
    loader(inbox, []).load()
    waiting = [message for _ in range(3) for message in inbox.get_nowait()]
    assert [m.command for m in waiting if isinstance(m, Cancel)] == [1, 2, 3]


def test_temporary_files_go_to_a_directory_of_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    place = tmp_path / "jit" / "1.0"
    place.mkdir(parents=True, mode=0o755)
    keep_temporary_files_in(place)
    assert os.environ["TMPDIR"] == str(place)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
