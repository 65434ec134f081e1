"""What is not to be kept is nowhere on the disk: not in the database, its log, the run directory or
any log, also after a crash."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.durable.conftest import NewPlace
from tests.durable.place import Place
from tests.durable.streams import JobStream
from tests.e2e.calls import Call
from tests.waiting import wait_until

ASKED: Final = "quaestio-7f3a91"
ANSWERED: Final = "responsum-c04d2e"
KEEP_S: Final = 1.0


def files(place: Place) -> Iterator[Path]:
    """Every file that the server or its workers may write: all but the models, and sockets."""
    for root in (place.site.root, place.site.runtime_dir):
        for path in root.rglob("*"):
            if path.is_file() and "models" not in path.parts:
                yield path


def found(place: Place, marker: str) -> list[str]:
    """The files that hold this text."""
    return [str(path) for path in files(place) if marker.encode() in path.read_bytes()]


def assert_looked_everywhere(place: Place) -> None:
    """The search is no search if the files are not where it looks."""
    names = {path.name for path in files(place)}
    assert {"mlxq.db", "mlxq.db-wal", "server.log"} <= names
    assert any(name.startswith("gen_") for name in names)


@pytest.mark.timeout(120)
def test_no_word_of_an_attached_request_is_written_whatever_dies(new_place: NewPlace) -> None:
    place = new_place({"step_s": 0.01}, {"log.level": "debug"})
    server = place.start()
    endless = f"{ASKED} [[tokens=100000]]"
    said = server.chat(f"{ASKED} [[say={ANSWERED}]]").json()
    assert said["choices"][0]["message"]["content"] == ANSWERED
    for order in ("reject_at=3", "refuse=because"):
        server.chat(f"{ASKED} [[{order}]]", max_tokens=8)
    with ExitStack() as stack:
        call = stack.enter_context(Call(server, endless))
        call.read_text(20)
        place.worker().kill()
        call.read_text(40)
        assert_looked_everywhere(place)
        assert found(place, ASKED) == found(place, ANSWERED) == []
        place.kill_parent()
    assert found(place, ASKED) == []
    place.start()
    place.server.wait_until_idle()
    place.stop()
    assert found(place, ASKED) == found(place, ANSWERED) == []


@pytest.mark.timeout(120)
def test_of_a_job_that_is_not_to_be_stored_nothing_is_left_after_its_time(
    new_place: NewPlace,
) -> None:
    place = new_place({"step_s": 0.01}, {"log.level": "debug"})
    place.start(f"set app.http.native.decode:KEEP_UNSTORED_S {KEEP_S}")
    kept = place.submit("[[tokens=3]]")
    content = f"{ASKED} [[say={ANSWERED}]]"
    jobs = [place.submit(content, n, body={"store": False}) for n in range(3)]
    streams = [JobStream(place, job) for job in jobs]
    assert {stream.finished().text for stream in streams} == {ANSWERED}
    wait_until(lambda: place.store.count() == 1, 20, "the deletion")
    assert place.server.get(f"/v1/jobs/{jobs[0]}").status_code == 404
    assert_looked_everywhere(place)
    wait_until(lambda: not found(place, ASKED) + found(place, ANSWERED), 10, "the overwriting")
    assert place.ended(kept)["state"] == "completed"
    assert not place.store.rows("SELECT 1 FROM chunk WHERE job <> ?", kept)


@pytest.mark.timeout(120)
def test_what_was_due_to_be_deleted_while_there_was_no_server_goes_at_the_next_start(
    new_place: NewPlace,
) -> None:
    place = new_place({"step_s": 0.01})
    place.start(f"set app.http.native.decode:KEEP_UNSTORED_S {KEEP_S}")
    job = place.submit(f"{ASKED} [[say={ANSWERED}]]", body={"store": False})
    place.ended(job)
    place.kill_parent()
    assert found(place, ASKED)
    place.start()
    wait_until(lambda: not place.store.count(), 20, "the deletion")
    wait_until(lambda: not found(place, ASKED) + found(place, ANSWERED), 10, "the overwriting")
