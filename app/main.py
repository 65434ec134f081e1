"""The composition root: settings → store → services → HTTP, and the order of start and stop.

Nothing is decided here. Start: lock and store, past put in order, socket, HTTP. Stop, in reverse:
admission, jobs, connections, workers, socket, store.
"""

import asyncio
import gc
import os
import signal
import sqlite3
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from socket import socket
from typing import Final

import structlog
import uvicorn

from app import log
from app.catalogue.entries import Catalogue
from app.connection import Connection
from app.http.application import create_app
from app.http.ports import Ports
from app.http.reports.ports import ReportPorts
from app.http.webhooks.ports import WebhookPorts
from app.product import Product, assemble
from app.server import BACKLOG, CONNECTION_GRACE_S, Server, bind
from app.services.clock import SystemClock
from app.settings import Settings
from app.storage.database import DATABASE_NAME, Database
from app.storage.errors import StoreError
from app.storage.limits import WriterLimits
from app.supervision.run_dir import SOCKET_NAME, RunDirUnsafe, prepare_run_dir

EXIT_OK = 0
EXIT_CANNOT_START = 1
EXIT_STORE_BROKE = 70

GC_THRESHOLDS: Final = (50_000, 20, 100)
"""Objects made and not freed before the young are looked at, and how often the older are."""

_log = structlog.get_logger("main")


def serve(settings: Settings) -> int:
    """Serve until a signal says stop; returns the exit code."""
    log.configure(settings.log.level, settings.log.format)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(settings))
    except (StoreError, RunDirUnsafe) as error:
        return _cannot_start(str(error))
    except sqlite3.DatabaseError as error:
        path = settings.storage.data_dir / DATABASE_NAME
        return _cannot_start(f"{path}: {error}; `mlxq doctor` looks closer")
    except OSError as error:
        if error.filename is None:
            raise
        return _cannot_start(f"{error.filename}: {error.strerror}")


def _cannot_start(reason: str) -> int:
    print(f"mlxq cannot start: {reason}", file=sys.stderr)  # noqa: T201
    return EXIT_CANNOT_START


def version() -> str:
    """The installed version of this program."""
    try:
        return installed_version("mlxq")
    except PackageNotFoundError:
        return "0"


async def _serve(settings: Settings) -> int:
    database = await Database.open(
        settings.storage.data_dir,
        limits=WriterLimits(operations_max=2 * settings.queue.writer_max),
        ballast=settings.storage.ballast_bytes,
        on_fatal=_store_broke,
    )
    try:
        listener = bind(settings.server.host, settings.server.port)
    except OSError as error:
        await database.close()
        address = f"{settings.server.host}:{settings.server.port}"
        print(f"mlxq cannot listen on {address}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return EXIT_CANNOT_START
    try:
        run_dir = prepare_run_dir(settings.storage.data_dir)
    except RunDirUnsafe:
        await database.close()
        raise
    product = await assemble(settings, database, run_dir / SOCKET_NAME, SystemClock(), version())
    await product.start()
    try:
        await _run(product, settings, listener)
    finally:
        await product.stop()
    return EXIT_OK


def _store_broke(error: Exception) -> None:
    """Nothing can be recorded any more, so nothing may be promised: end at once, as a crash. The
    workers go on, and the next start finds everything that was committed."""
    _log.critical("store_broke", error=str(error))
    os._exit(EXIT_STORE_BROKE)


async def _run(product: Product, settings: Settings, listener: socket) -> None:
    """Answer requests until a stop was asked for and every stream has ended."""
    reporting = product.reporting
    ports = Ports(
        submission=product.submission,
        following=product.following,
        cancellation=product.cancellation,
        jobs=product.jobs,
        draining=product.draining,
        administration=product.administration,
        overview=product.overview,
        accounting=product.accounting,
        schedules=product.schedules,
        reports=ReportPorts(feed=reporting.feed, consumers=reporting.consumers),
        webhooks=WebhookPorts(
            feed=reporting.feed,
            endpoints=reporting.endpoints,
            deliveries=reporting.deliveries,
        ),
    )
    config = uvicorn.Config(
        create_app(ports, settings.server, version=version()),
        loop="none",
        http=Connection,
        ws="none",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        log_config=None,
        backlog=BACKLOG,
        timeout_graceful_shutdown=CONNECTION_GRACE_S,
    )
    server = Server(
        config,
        on_started=lambda: _announce(listener, settings),
        on_stop=product.settle,
    )
    _stop_on_signals(server, product)
    _settle_memory()
    await server.serve(sockets=[listener])


def _stop_on_signals(server: Server, product: Product) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if server.stop_requested:
            product.shutdown.force()
        server.request_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


def _settle_memory() -> None:
    """What is there now stays to the end: no collection looks at it again, which would hold up the
    loop for a tenth of a second now and then. What comes hardly ever forms a cycle, and a job lives
    long, so collections are rare: with the defaults they took a third of a bulk submission."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _announce(listener: socket, settings: Settings) -> None:
    """Say where the server is and how to try it."""
    host, port = listener.getsockname()[:2]
    base = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    model = settings.models.default
    lines = [f"mlxq serves {model} on {base}"]
    if Catalogue.of(settings).find(model) is None:
        lines.append(f"This model is not here yet: run `mlxq models pull {model}`.")
    lines += ["Try it:", _example(base, model)]
    print("\n".join(lines), flush=True)  # noqa: T201
    _log.info("listening", address=base, data_dir=str(settings.storage.data_dir))


def _example(base: str, model: str) -> str:
    """A line to try: short, and as the model answers best."""
    question = '{"role":"user","content":"What is the capital of France?"}'
    body = f'{{"model":"{model}","messages":[{question}],"temperature":0,"max_tokens":60}}'
    return f"  curl {base}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop
