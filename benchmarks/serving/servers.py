"""The servers that are measured, as processes."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import psutil

from benchmarks.serving.machine import Parts

START_S: Final = 120.0
_STOP_S: Final = 45.0
_LOG_CHARS: Final = 3_000

_Found = TypeVar("_Found")


class BenchFailed(Exception):
    """The measurement cannot go on; the text says why and shows the logs."""


@dataclass
class Served:
    """A server that answers on ``port``, the model's name there, and its logs."""

    name: str
    process: "subprocess.Popen[bytes]"
    port: int
    model: str
    logs: Callable[[], Sequence[Path]]
    host: str = "127.0.0.1"
    parts: Parts = field(default_factory=dict[str, psutil.Process])

    def log_tail(self) -> str:
        """The end of every log."""
        return "\n".join(f"--- {path} ---\n{_tail(path)}" for path in self.logs())


@dataclass(frozen=True)
class Setup:
    """What all sides have in common. ``blas`` None: this machine's MLX needs none."""

    model: Path
    dense_model: Path
    cache_dir: Path
    threads: int
    blas: Path | None
    work_dir: Path


@contextmanager
def mlxq(setup: Setup) -> Generator[Served]:
    """`mlxq serve` with default settings but for the number of BLAS threads."""
    data, out = setup.work_dir / "data", setup.work_dir / "mlxq.out"
    log = setup.work_dir / "mlxq.log"
    settings = setup.work_dir / "settings.toml"
    settings.touch()
    sets = {
        "worker.blas_threads": str(setup.threads),
        "server.start_timeout_s": "600",
        "storage.cache_dir": str(setup.cache_dir),
    }
    command = [sys.executable, "-m", "app.cli.main", "--config", str(settings), "serve"]
    command += ["--port", "0", "--data-dir", str(data), "--model", str(setup.model)]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("MLXQ_")}
    process = _start(command, environ, out, log)
    served = Served(
        "mlxq", process, 0, str(setup.model), lambda: [log, *sorted(data.glob("logs/*.log"))]
    )
    try:
        found = _await(served, lambda: re.search(r"http://[\d.]+:(\d+)", out.read_text()))
        served.port = int(found[1])
        yield served
    finally:
        _stop(process)


@contextmanager
def mlx_lm_server(setup: Setup, *, with_blas: bool) -> Generator[Served]:
    """`mlx_lm.server` with default settings, with or without the BLAS that mlxq uses."""
    name = "mlx_lm.server" if with_blas else "mlx_lm.server as installed"
    log = setup.work_dir / f"{name.replace(' ', '-')}.log"
    port = _free_port()
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", str(setup.dense_model)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    kernels = setup.cache_dir / "benchmarks" / "kernels"
    kernels.mkdir(parents=True, exist_ok=True, mode=0o700)
    environ = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TMPDIR": str(kernels),
    }
    if with_blas and setup.blas is not None:
        environ["LD_PRELOAD"] = str(setup.blas)
        environ["OPENBLAS_NUM_THREADS"] = str(setup.threads)
    process = _start(command, environ, log, log)
    served = Served(name, process, port, "default_model", lambda: [log])
    try:
        _await(served, lambda: _listens(port) or None)
        served.parts = {"server": psutil.Process(process.pid)}
        yield served
    finally:
        _stop(process)


def find_parts(served: Served) -> None:
    """Name the processes of a `mlxq serve` that has answered once, so that it has a worker."""
    parent = psutil.Process(served.process.pid)
    workers = [p for p in parent.children(recursive=True) if p.cmdline()[-2:] == ["-m", "worker"]]
    if len(workers) != 1:
        raise BenchFailed(f"{served.name} has {len(workers)} workers\n{served.log_tail()}")
    served.parts = {"parent": parent, "worker": workers[0]}


def require_blas(process: psutil.Process, blas: Path, *, loaded: bool = True) -> None:
    """Make sure that the process has this library loaded, or not. Looks into /proc."""
    maps = Path(f"/proc/{process.pid}/maps").read_text()
    if (str(blas) in maps) != loaded:
        raise BenchFailed(
            f"process {process.pid} {'lacks' if loaded else 'has'} {blas}: "
            f"{' '.join(process.cmdline()[:6])}"
        )


def _start(
    command: Sequence[str], environ: Mapping[str, str], out: Path, log: Path
) -> "subprocess.Popen[bytes]":
    with out.open("wb") as output, log.open("ab") as errors:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=dict(environ),
        )


def _await(served: Served, look: Callable[[], _Found | None]) -> _Found:
    """What ``look`` finds once the server is up."""
    deadline = time.monotonic() + START_S
    while (found := look()) is None:
        if served.process.poll() is not None:
            why = f"ended with {served.process.returncode} while starting"
        elif time.monotonic() > deadline:
            why = f"did not start within {START_S:.0f} s"
        else:
            time.sleep(0.1)
            continue
        raise BenchFailed(f"{served.name} {why}\n{served.log_tail()}")
    return found


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask, wait, insist; children that are left are killed."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in children:
        if child.is_running():
            child.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-_LOG_CHARS:] if path.is_file() else "(no file)"
