"""Directories and sockets that others meddle with."""

import os
import shutil
import socket
from pathlib import Path
from typing import Final

import zmq

from tests.durable.place import Place, assert_counted_once
from tests.e2e.server import Site, site_in
from tests.rough.conftest import Begin, RoughPlace
from tests.rough.traces import nothing_stays
from tests.waiting import wait_until

SLOW: Final = {"step_s": 0.02}
LONG: Final = "[[tokens=150]]"


def socket_of(site: Site) -> Path:
    """Where the workers' socket lies."""
    (path,) = site.runtime_dir.rglob("w.sock")
    return path


def replaced(place: Place) -> None:
    """The worker dies, and the one that starts in its place finds its parent."""
    before = place.worker()
    before.kill()
    job = place.submit("[[tokens=3]]")
    assert place.ended(job)["state"] == "completed"
    assert place.worker().pid != before.pid


def bound_again(place: Place, times: int) -> None:
    wait_until(
        lambda: place.site.log.read_text().count("socket_bound_again") >= times, 10, "the socket"
    )


def test_a_socket_that_is_taken_away_or_over_is_bound_again(begin: Begin) -> None:
    place = begin(script=SLOW)
    with nothing_stays(place.server, but_descriptors=3):  # one for each time it was bound
        job = place.submit(LONG)
        place.running(job)
        path = socket_of(place.site)
        path.unlink()
        bound_again(place, 1)
        with zmq.Context() as context, context.socket(zmq.ROUTER) as taker:
            taker.bind(f"ipc://{path}")
            bound_again(place, 2)
            path.unlink()
            path.mkdir()  # and now something that is no socket stands there
            path.rmdir()
            bound_again(place, 3)
            assert place.ended(job)["state"] == "completed"
            assert place.outcomes(job) == ["finished"]
            replaced(place)
        replaced(place)


def test_a_run_directory_that_is_taken_away_is_made_again(begin: Begin) -> None:
    place = begin(script=SLOW)
    job = place.submit(LONG)
    place.running(job)
    run_dir = socket_of(place.site).parent
    shutil.rmtree(run_dir)
    bound_again(place, 1)
    assert run_dir.stat().st_mode & 0o777 == 0o700
    replaced(place)
    assert place.ended(job)["state"] == "completed"


def test_a_place_for_run_directories_that_is_gone_is_told_until_it_is_back(begin: Begin) -> None:
    place = begin()
    place.ended(place.submit("[[tokens=1]]"))
    run_dir = socket_of(place.site).parent
    root = run_dir.parent
    away = root.rename(root.with_name(f"{root.name}-away"))
    place.worker().kill()
    told = wait_until(lambda: unready(place), 10, "the trouble")
    assert "no worker can reach this server" in told
    assert str(root) in told
    away.rename(root)
    shutil.rmtree(run_dir)
    bound_again(place, 1)
    assert place.ended(place.submit("[[tokens=1]]"))["state"] == "completed"
    assert place.server.get("/readyz").status_code == 200


def unready(place: Place) -> str:
    """Why the server is not ready; nothing when it is."""
    answer = place.server.get("/readyz")
    return "" if answer.status_code == 200 else answer.text


def test_whatever_lies_in_the_run_directory_is_cleared_away_at_the_start(begin: Begin) -> None:
    place = begin(script=SLOW)
    run_dir = socket_of(place.site).parent
    assert run_dir.stat().st_mode & 0o777 == 0o700
    place.kill_parent()
    place.site.kill_all()
    elsewhere = place.site.root / "precious"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    (run_dir / "file").touch()
    (run_dir / "link").symlink_to(elsewhere)
    (run_dir / "directory").mkdir()
    (run_dir / "directory" / "file").touch()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(run_dir / "old.sock"))
    run_dir.chmod(0o777)
    place.start()
    assert [path.name for path in run_dir.iterdir()] == ["w.sock"]
    assert run_dir.stat().st_mode & 0o777 == 0o700
    assert (elsewhere / "file").exists()
    place.ended(place.submit("[[tokens=1]]"))


def said_at_start(site: Site) -> str:
    """Why it does not start."""
    log = site.root / "refused.log"
    assert site.launch({}, log, log).wait(30) == 1
    (line,) = [line for line in log.read_text().splitlines() if not line.startswith("{")]
    return line


def test_a_path_that_is_too_long_for_a_socket_is_said_with_its_cure(site: Site) -> None:
    short = site.runtime_dir
    site.runtime_dir = short / ("long-" * 20)
    site.runtime_dir.mkdir()
    line = said_at_start(site)
    assert "too long for a socket" in line
    assert "set XDG_RUNTIME_DIR to a shorter directory" in line
    assert not list(site.runtime_dir.iterdir())
    site.runtime_dir = short


def test_a_run_directory_that_is_none_is_said(begin: Begin) -> None:
    place = begin()
    run_dir = socket_of(place.site).parent
    place.stop()
    shutil.rmtree(run_dir)
    run_dir.touch()
    assert f"{run_dir} cannot be used" in said_at_start(place.site)


def test_a_second_start_leaves_the_first_alone(begin: Begin) -> None:
    place = begin(script=SLOW)
    with nothing_stays(place.server):
        job = place.submit(LONG)
        place.running(job)
        inode = socket_of(place.site).stat().st_ino
        line = said_at_start(place.site)
        assert f"process {place.server.pid}, started 20" in line
        assert socket_of(place.site).stat().st_ino == inode
        assert place.ended(job)["state"] == "completed"
        assert place.outcomes(job) == ["finished"]
        replaced(place)


def test_the_server_of_a_copied_directory_leaves_the_originals_workers_alone(
    begin: Begin, tmp_path: Path, worker_cache: Path
) -> None:
    place = begin(script=SLOW)
    place.warm()
    with nothing_stays(place.server), site_in(tmp_path / "copy", worker_cache) as site:
        job = place.submit(LONG)
        place.running(job, tokens=10)
        worker = place.worker()
        place.suspend_parent()  # so that the copy is one of a quiet moment
        site.root.mkdir()
        shutil.copytree(place.site.data_dir, site.data_dir)
        place.go_on_parent()
        copy = RoughPlace(site, SLOW)
        copy.start()
        assert copy.ended(job)["state"] == "completed"
        assert copy.worker().pid != worker.pid
        assert copy.outcomes(job) == ["lost", "finished"]
        assert place.ended(job)["state"] == "completed"
        assert place.outcomes(job) == ["finished"]
        assert place.worker().pid == worker.pid
        assert copy.tokens(job) == place.tokens(job)
        assert_counted_once(place, [job])
        assert_counted_once(copy, [job])
        copy.stop()
        assert os.getpgid(worker.pid) == worker.pid
        replaced(place)
