"""The server's services in this process, without a door: for moments that only memory knows."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from app.domain.draft import JobDraft
from app.domain.job import Durability
from app.product import Product, assemble
from app.services.clock import Clock, SystemClock
from app.services.ledger import LiveJob
from app.settings import ServerSettings, Settings, StorageSettings, WorkerSettings
from app.storage.committing import CommitHooks
from app.storage.database import Database
from shared.ids import JobId
from shared.requests import ChatMessage, ChatRequest
from shared.sampling import SamplingParams
from tests.e2e.server import Site

MODEL = "scripted"


def settings_of(site: Site, script: dict[str, Any], **worker: Any) -> Settings:
    """Settings for a scripted model of this site."""
    site.add_scripted_model(MODEL)
    return Settings(
        storage=StorageSettings(data_dir=site.data_dir, cache_dir=site.cache_dir),
        server=ServerSettings(cancel_wait_s=0.0),
        worker=WorkerSettings(
            engine="scripted",
            scripted=msgspec.json.encode(script).decode(),
            heartbeat_interval_s=0.2,
            **worker,
        ),
    )


@asynccontextmanager
async def assembled(
    settings: Settings, hooks: CommitHooks | None = None, clock: Clock | None = None
) -> AsyncGenerator[Product]:
    """The services, started; at the end they stop as a server does."""
    database = await Database.open(settings.storage.data_dir, hooks=hooks)
    with tempfile.TemporaryDirectory(prefix="mlxq-") as run_dir:
        socket_path = Path(run_dir) / "w.sock"
        product = await assemble(settings, database, socket_path, clock or SystemClock(), "test")
        await product.start()
        try:
            yield product
        finally:
            product.shutdown.force()
            await product.settle()
            await product.stop()


def draft(content: str, durability: Durability = Durability.DURABLE, **fields: Any) -> JobDraft:
    """A job to submit."""
    request = ChatRequest((ChatMessage("user", content),), SamplingParams(seed=1))
    return JobDraft(surface="native", model=MODEL, request=request, durability=durability, **fields)


async def running(product: Product, job: JobId, tokens: int = 1) -> LiveJob:
    """The open job, once so many of its tokens were taken in."""
    live = product.ledger.get(job)
    assert live is not None
    follower = live.channel.follow()
    while live.output.completion_tokens < tokens:
        assert await follower.take(30), f"{job} says nothing"
    follower.close()
    return live
