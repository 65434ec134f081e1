"""A file system of a few megabytes that is really full. Needs the right to mount one."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.durable.place import Place
from tests.e2e.server import Site
from tests.waiting import wait_until

MIB: Final = 1 << 20
SIZE: Final = 40 * MIB
BALLAST: Final = 8 * MIB
LONG: Final = "[[tokens=400]]"


@pytest.fixture
def small_place(tmp_path: Path, worker_cache: Path) -> Iterator[Place]:
    """A place whose data directory is a small file system of its own."""
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(mount)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    site = Site(tmp_path, worker_cache)
    site.data_dir = mount / "data"
    site.store.path = site.data_dir / "mlxq.db"
    try:
        yield Place(site, {"step_s": 0.01}, {"storage.ballast_bytes": BALLAST})
    finally:
        site.close()
        subprocess.run(["umount", "-l", str(mount)], check=True)  # noqa: S607


def fill(place: Place) -> None:
    """To the last byte."""
    with (place.site.data_dir.parent / "filler").open("ab", buffering=0) as filler:
        for size in (65_536, 1_024, 1):
            try:
                while True:
                    filler.write(os.urandom(size))
            except OSError:
                continue


def refused(place: Place) -> None:
    """Until the server has found out that there is no room."""
    body = place.body("much " * 10_000)
    wait_until(lambda: place.post("/v1/jobs", body).status_code == 507, 20, "a 507")


def give_room(place: Place) -> None:
    (place.site.data_dir.parent / "filler").unlink()
    wait_until(lambda: place.server.get("/readyz").status_code == 200, 20, "room")


@pytest.mark.torture
@pytest.mark.timeout(180)
def test_work_at_hand_goes_on_and_a_start_succeeds_on_a_disk_that_is_full(
    small_place: Place,
) -> None:
    place = small_place
    place.start()
    ballast = place.site.data_dir / "ballast"
    peace = place.submit(LONG)
    place.ended(peace)
    job = place.submit(LONG)
    place.running(job, tokens=5)
    fill(place)
    refused(place)
    assert place.ended(job)["state"] == "completed"
    assert place.tokens(job) == place.tokens(peace)
    give_room(place)
    assert ballast.exists()
    again = place.submit(LONG)
    place.running(again, tokens=5)
    place.kill_parent()
    fill(place)
    place.start()
    refused(place)
    assert place.server.get("/readyz").json()["reason"] == "the server is out of disk space"
    assert not ballast.exists()
    assert place.ended(again)["state"] == "completed"
    assert place.tokens(again) == place.tokens(peace)
    give_room(place)
    place.ended(place.submit("[[tokens=1]]"))
    place.stop()
