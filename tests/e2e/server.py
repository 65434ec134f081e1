"""``mlxq serve`` as a subprocess, with real worker processes, on a directory of its own."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from tests.e2e.store import Store
from tests.waiting import wait_until

START_S: Final = 40.0
END_S: Final = 30.0
SCRIPTED: Final = "scripted"
CHAT: Final = "/v1/chat/completions"

_MARK: Final = "SERVER_UNDER_TEST"
_SERVE: Final = ("-m", "app.cli.main")


@dataclass
class RunningServer:
    """One server process. ``model`` is the one that requests ask for."""

    process: "subprocess.Popen[bytes]"
    site: "Site"
    base: str
    model: str
    client: httpx.Client = field(repr=False, default_factory=lambda: httpx.Client(timeout=50))

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def address(self) -> tuple[str, int]:
        url = httpx.URL(self.base)
        return url.host, url.port or 80

    @property
    def store(self) -> Store:
        return self.site.store

    def worker(self) -> psutil.Process:
        """The one worker, once there is one."""
        wait_until(lambda: len(self.site.workers()) == 1, 30, "one worker process")
        return self.site.workers()[0]

    def body(self, content: str, **fields: Any) -> dict[str, Any]:
        """A chat request of one user's message."""
        messages = [{"role": "user", "content": content}]
        return {"model": self.model, "messages": messages, **fields}

    def chat(self, content: str, **fields: Any) -> httpx.Response:
        """One plain chat request."""
        return self.client.post(f"{self.base}{CHAT}", json=self.body(content, **fields))

    def get(self, path: str) -> httpx.Response:
        """One GET request."""
        return self.client.get(f"{self.base}{path}")

    def metric(self, name: str) -> float:
        """The sum over the samples of one metric."""
        samples = rf"^mlxq_{name}(?:{{[^}}]*}})? ([0-9.e+]+)$"
        return sum(map(float, re.findall(samples, self.get("/metrics").text, re.MULTILINE)))

    def wait_until_idle(self, timeout: float = 20) -> None:
        """Until no job is open."""
        wait_until(lambda: not self.metric("jobs_open"), timeout, "the end of all jobs")

    def tell(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def ended(self, timeout: float = END_S) -> int:
        """The exit code, once it is there."""
        code = self.process.wait(timeout)
        self.client.close()
        return code

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout: float = END_S) -> int:
        """Signal the server and wait for its end."""
        self.tell(number)
        return self.ended(timeout)


class Site:
    """A data directory with all that belongs to it, over any number of starts.

    Processes carry the directory in their environment, so that whatever still lives is found.
    """

    def __init__(self, root: Path, cache_dir: Path) -> None:
        self.root = root
        self.cache_dir = cache_dir
        self.data_dir = root / "data"
        self.log = root / "server.log"
        # Short and not below ``root``: a socket's path has a limit.
        self.runtime_dir = Path(tempfile.mkdtemp(prefix="mlxq-"))
        self.store = Store(self.data_dir / "mlxq.db")
        self.servers: list[RunningServer] = []
        self._strangers = set(psutil.pids())

    def add_scripted_model(self, name: str) -> None:
        """What the catalogue takes for a model; the scripted engine reads none of it."""
        path = self.data_dir / "models" / name
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text('{"model_type":"llama","max_position_embeddings":4096}')
        (path / "tokenizer.json").write_text("{}")
        (path / "tokenizer_config.json").write_text("{}")
        (path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")

    def start(
        self,
        script: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        engine: str = "scripted",
        model: str = SCRIPTED,
        program: Sequence[str] = _SERVE,
    ) -> RunningServer:
        """Start a server and wait until it listens.

        Args:
            script: what the scripted engine is told.
            settings: by their full names.
            model: the default one, and that of requests.
            program: what to give to Python in place of the command line's module.
        """
        if engine == "scripted":
            self.add_scripted_model(model)
            settings = {"worker.scripted": json.dumps(script or {}), **(settings or {})}
        values = {"worker.engine": engine, "models.default": model, **(settings or {})}
        said = self.root / f"said-{len(self.servers)}"
        process = self.launch(values, said, self.log, program)
        address = _wait_for_address(process, said, self.log)
        server = RunningServer(process, self, address, model)
        self.servers.append(server)
        return server

    def launch(
        self, settings: Mapping[str, Any], said: Path, log: Path, program: Sequence[str] = _SERVE
    ) -> "subprocess.Popen[bytes]":
        """Start the process alone, whatever becomes of it, with its output in these files."""
        values = {
            "server.port": 0,
            "storage.data_dir": self.data_dir,
            "storage.cache_dir": self.cache_dir,
            "models.hub_cache": self.root / "hub",
            "storage.ballast_bytes": 0,
            "worker.heartbeat_interval_s": 0.2,
            **settings,
        }
        sets = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        with said.open("wb") as output, log.open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, *program, "serve", *sets],
                stdout=output,
                stderr=errors,
                env=self._environment(),
            )

    def workers(self) -> list[psutil.Process]:
        """Living worker processes of this site, whoever started them."""
        return [process for process in self._processes() if _is_worker(process)]

    def kill_all(self) -> None:
        """End everything that still lives here."""
        for process in self._processes():
            process.kill()
        for server in self.servers:
            server.client.close()
            server.process.kill()
            server.process.wait(END_S)

    def close(self) -> None:
        """End everything, and leave nothing outside ``root``."""
        self.kill_all()
        shutil.rmtree(self.runtime_dir)

    def _environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("MLXQ_")}
        own = {_MARK: str(self.data_dir), "XDG_RUNTIME_DIR": str(self.runtime_dir)}
        return {**inherited, **own, "XDG_CONFIG_HOME": str(self.root / "config")}

    def _processes(self) -> list[psutil.Process]:
        newer = set(psutil.pids()) - self._strangers
        return [process for pid in sorted(newer) if (process := self._ours(pid)) is not None]

    def _ours(self, pid: int) -> psutil.Process | None:
        try:
            process = psutil.Process(pid)
            marked = process.environ().get(_MARK) == str(self.data_dir)
            return process if marked and process.status() != psutil.STATUS_ZOMBIE else None
        except (psutil.Error, OSError):
            return None


@contextmanager
def site_in(root: Path, cache_dir: Path) -> Generator[Site]:
    """A site in ``root``; whatever still lives of it at the end is killed."""
    site = Site(root, cache_dir)
    try:
        yield site
    finally:
        site.close()


def _is_worker(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[-1:] == ["worker"]
    except psutil.Error:
        return False


def _wait_for_address(process: "subprocess.Popen[bytes]", said: Path, log: Path) -> str:
    def address() -> str | None:
        ended = process.poll()
        found = re.search(r"on (http://\S+)\n", said.read_text())
        assert found or ended is None, f"it ended with {ended}: {log.read_text()[-3000:]}"
        return found[1] if found else None

    found = wait_until(address, START_S, "the server's address")
    assert found
    return found
