"""The parent as a process: what it loads, what it weighs, and that there is one per directory."""

import asyncio
import errno
import os
import re
import signal
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.server import CHAT, RunningServer, Site
from tests.waiting import wait_until

HEAVY = {"mlx", "mlx_lm", "transformers", "tokenizers", "torch", "numpy", "scipy_openblas32"}
NEEDLESS = {"alembic", "sqlalchemy", "pydantic", "pydantic_core", "rich", "huggingface_hub"}
"""Large, and of no use to a server whose store is new or up to date."""

REQUESTS = 1_000
CLIENTS = 16
RSS_BYTES_MAX = 120_000_000


async def ask_often(server: RunningServer) -> None:
    """Many small requests from a few clients, every second one as a stream."""
    bodies = [server.body("[[tokens=3]]", stream=bool(n % 2)) for n in range(2)]

    async def one_client(client: httpx.AsyncClient) -> None:
        for n in range(REQUESTS // CLIENTS + 1):
            answer = await client.post(f"{server.base}{CHAT}", json=bodies[n % 2])
            assert answer.status_code == 200

    async with httpx.AsyncClient(timeout=30) as client, asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(one_client(client))


def mapped_packages(pid: int) -> set[str]:
    """The installed packages that have files mapped into a process."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return set(re.findall(r"/site-packages/(\w+)", maps))


async def test_the_parent_loads_no_mlx_and_stays_small_over_a_thousand_requests(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = site.root / "modules"
    monkeypatch.setenv("MODULES_FILE", str(told))
    server = site.start(program=("-m", "tests.e2e.serve_and_tell"))
    await ask_often(server)
    rss_bytes = psutil.Process(server.pid).memory_info().rss
    server.tell(signal.SIGUSR1)
    wait_until(told.exists, what="the list of modules")
    loaded = {name.partition(".")[0] for name in told.read_text().split()}
    assert {"app", "litestar", "zmq", "aiosqlite"} <= loaded
    assert not loaded & (HEAVY | NEEDLESS)
    if sys.platform == "linux":
        mapped = mapped_packages(server.pid)
        assert "uvloop" in mapped
        assert not mapped & HEAVY
    assert rss_bytes < RSS_BYTES_MAX
    assert server.store.count() >= REQUESTS
    assert server.metric("jobs_ended_total") == server.store.count()


def refusal_to_start(site: Site, log: Path, **settings: object) -> str:
    """The one line that says why it does not start."""
    named = {name.replace("_", ".", 1): value for name, value in settings.items()}
    assert site.launch(named, log, log).wait(30) == 1
    (line,) = [line for line in log.read_text().splitlines() if not line.startswith("{")]
    return line


def test_a_second_server_on_the_same_directory_says_who_holds_it(
    scripted: RunningServer, tmp_path: Path
) -> None:
    line = refusal_to_start(scripted.site, tmp_path / "second.log")
    assert f"process {scripted.pid}, started 20" in line
    assert str(scripted.site.data_dir) in line
    assert scripted.chat("hello").status_code == 200


def test_a_port_that_is_taken_is_said_in_one_line(scripted: RunningServer, site: Site) -> None:
    host, port = scripted.address
    line = refusal_to_start(site, site.root / "second.log", server_port=port)
    assert f"{host}:{port}" in line
    assert os.strerror(errno.EADDRINUSE) in line


def test_only_loopback_is_listened_on(scripted: RunningServer) -> None:
    listening = [
        connection.laddr.ip
        for connection in psutil.Process(scripted.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]


def test_a_worker_runs_the_installed_program_wherever_the_server_was_started(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = site.root / "elsewhere"
    for package in ("worker", "shared"):
        (elsewhere / package).mkdir(parents=True)
        (elsewhere / package / "__init__.py").write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(elsewhere)
    server = site.start(program=("-P", "-m", "app.cli.main"))
    assert server.chat("hello").status_code == 200
