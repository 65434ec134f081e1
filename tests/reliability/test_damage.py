"""A damaged database or log: the server does not start and says why, or names what is damaged, or
serves what is right. It never serves anything else, and never ends with a traceback."""

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from app.storage.verify import verify_file
from tests.durable.place import Place
from tests.e2e.server import site_in
from tests.reliability.counts import NewCampaign
from tests.reliability.damaging import LOG_NAME, Found, Served, harm, judged, open_and_read

ENDED: Final = 12
RUNNING: Final = 4
WAITING: Final = 4
WORDS: Final = 400
"""In each prompt."""


@dataclass(frozen=True)
class Killed:
    """What a server left that was killed at work, and what it held."""

    directory: Path
    truth: Served


@pytest.fixture
def killed(tmp_path: Path, worker_cache: Path) -> Iterator[Killed]:
    """Jobs that have ended, that run and that wait; the last commits are in the log."""
    with site_in(tmp_path, worker_cache) as site:
        place = Place(site, {"step_s": 0.01}, {"worker.rows": 4, "worker.prefetch": 0})
        place.start()
        ended = _submit(place, ENDED, tokens=40)
        for job in ended:
            place.ended(job)
        place.stop()  # the log goes back into the file
        place.start()
        running = _submit(place, RUNNING, tokens=5_000)
        waiting = _submit(place, WAITING, tokens=9)
        for job in running:
            place.running(job, 20)
        place.kill_parent()
        place.worker_gone()
        directory = tmp_path / "killed"
        shutil.copytree(site.data_dir, directory)
        copy = tmp_path / "truth"
        shutil.copytree(directory, copy)
        truth, named = asyncio.run(open_and_read(copy, [*ended, *running, *waiting]))
        assert not named
        assert not truth.errors
        yield Killed(directory, truth)


def _submit(place: Place, count: int, tokens: int) -> list[str]:
    contents = [f"job {n} {'word ' * WORDS} [[tokens={tokens}]]" for n in range(count)]
    return [place.submit(c, n, tags={"n": str(n)}) for n, c in enumerate(contents)]


def test_a_damaged_store_is_refused_named_or_right(
    campaign: NewCampaign, killed: Killed, tmp_path: Path
) -> None:
    found: Counter[Found] = Counter()
    copy = tmp_path / "damaged"

    def one_damage(seed: int) -> None:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(killed.directory, copy)
        name, kind = harm(copy, random.Random(seed))
        try:
            found[judged(copy, killed.truth, name)] += 1
        except BaseException as error:
            error.add_note(f"{name}: {kind}")
            raise

    damages = campaign(small=200, large=5_000, unit="damaged stores")
    damages.run(one_damage)
    damages.unit += f" ({', '.join(f'{count}: {what}' for what, count in sorted(found.items()))})"
    assert damages.alone or found.keys() >= {Found.REFUSED, Found.NAMED, Found.WHOLE}


def test_a_server_on_a_damaged_store_refuses_in_a_line_or_serves_what_is_right(
    campaign: NewCampaign, killed: Killed, tmp_path: Path, worker_cache: Path
) -> None:
    """The same from outside: ``mlxq serve``, and what it answers."""

    def one_server(seed: int) -> None:
        root = tmp_path / f"server-{seed}"
        root.mkdir()
        with site_in(root, worker_cache) as site:
            shutil.copytree(killed.directory, site.data_dir)
            name, kind = harm(site.data_dir, random.Random(seed))
            try:
                _served_right(Place(site, {"step_s": 0.01}), killed.truth, name)
            except BaseException as error:
                error.add_note(f"{name}: {kind}; {site.log.read_text()[-3000:]}")
                raise
            site.kill_all()
            shutil.rmtree(site.data_dir)

    campaign(small=8, large=200, unit="servers on damaged stores").run(one_server)


def _served_right(place: Place, truth: Served, name: str) -> None:
    refused = _refusal(place)
    if refused is not None:
        assert "mlxq cannot start: " in refused
        assert "Traceback" not in refused
        return
    for job, tokens in truth.tokens.items():
        answer = place.server.get(f"/v1/jobs/{job}")
        if answer.status_code == 500:
            assert answer.json()["error"]["code"] == "storage_damaged"
        elif answer.status_code == 404:
            # The end of the log is gone, and the job with it; or its id, which the check names.
            assert name == LOG_NAME or verify_file(place.store.path).violations
        elif answer.json()["state"] == "completed":
            assert answer.json()["usage"]["completion_tokens"] >= len(tokens)
    assert "Traceback" not in place.site.log.read_text()


def _refusal(place: Place) -> str | None:
    """What a server said that did not start; None when it did."""
    try:
        place.start()
    except AssertionError:
        return place.site.log.read_text()
    return None
