"""A worker that says whatever it likes, in sound form, costs itself and the jobs it was given: the
server goes on, nothing else is touched, and the store stays in order."""

import asyncio
import random
import shutil
from typing import Any, Final

import msgspec
import pytest

from app.product import Product
from app.services.launching import Launcher
from shared.ids import JobId
from shared.messages import Frame, RunJob, ToParent
from tests.durable.assembled import assembled, draft, settings_of
from tests.durable.order import assert_in_order
from tests.durable.played_worker import Cast, PlayedWorker
from tests.e2e.server import Site
from tests.reliability.counts import NewCampaign
from tests.reliability.forging import Forger
from tests.waiting import wait_until

SAID: Final = 100
"""Messages of one worker."""
JOBS: Final = 3


def test_a_mad_worker_costs_itself_alone(
    campaign: NewCampaign, monkeypatch: pytest.MonkeyPatch, site: Site
) -> None:
    def one_worker(seed: int) -> None:
        cast = Cast()

        def spawn(launcher: Launcher, *start: Any) -> PlayedWorker:
            return cast.spawn(launcher, *start)

        monkeypatch.setattr(Launcher, "spawn", spawn)
        shutil.rmtree(site.data_dir, ignore_errors=True)
        asyncio.run(_live_through(site, cast, random.Random(seed)))
        assert_in_order(site.store.path)

    campaign(small=10, large=10_000, unit=f"workers that said {SAID} things").run(one_worker)


async def _live_through(site: Site, cast: Cast, chance: random.Random) -> None:
    broken: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, what: broken.append(what))
    settings = settings_of(site, {}, stop_grace_s=0.0)
    async with assembled(settings) as product:
        before = [await _submit(product, f"before {n}") for n in range(JOBS)]
        worker = await cast.enters()
        await worker.hears(RunJob, JOBS)
        await _rave(worker, before, chance)
        after = await _submit(product, "after")
        assert (await product.jobs.get(after, "default")).id == after
        await asyncio.to_thread(_heard_out, product, worker)
    assert broken == []


async def _submit(product: Product, content: str) -> JobId:
    ticket = await product.submission.submit(draft(content))
    ticket.follower.close()
    return ticket.job_id


async def _rave(worker: PlayedWorker, jobs: list[JobId], chance: random.Random) -> None:
    runs = worker.all_heard(RunJob)
    known: dict[str, tuple[Any, ...]] = {
        "generation": (worker.generation,),
        "job": tuple(jobs),
        "attempt": (1,),
        "command": tuple(run.command for run in runs),
        "choice": (0,),
        "index": (0, 1, 2, 3),
        "first_unacked": (1,),
    }
    forger = Forger(ToParent, chance, known)
    for _ in range(SAID):
        message = forger.message()
        if isinstance(message, Frame) and chance.random() < 0.8:
            worker.seq += 1
            message = msgspec.structs.replace(message, seq=worker.seq)
        if worker.signals:
            return  # it was killed for what it said
        await worker.say(message)


def _heard_out(product: Product, worker: PlayedWorker) -> None:
    """Until the server has made up its mind: this worker is given up, or heard to the end."""
    known = product.fleet.get(worker.generation)
    if known is None:
        return
    wait_until(lambda: bool(worker.signals) or known.session.heard_at is not None, 20)
