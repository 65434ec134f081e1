"""`mlxq serve` on the scripted engine, as it is measured here."""

import re
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

START_S: Final = 60.0
STOP_S: Final = 60.0
_LISTENING: Final = re.compile(r"http://[\d.]+:(\d+)")


class BenchFailed(Exception):
    """The measurement cannot go on; the text says why."""


@dataclass(frozen=True)
class Running:
    """A server that accepts connections; ``started_s`` is the time from exec to there."""

    process: "subprocess.Popen[bytes]"
    port: int
    data: Path
    started_s: float

    @property
    def database(self) -> Path:
        """Its store."""
        return self.data / "mlxq.db"

    def worker(self) -> psutil.Process:
        """Its only worker.

        Raises:
            BenchFailed: when there is none, or more than one.
        """
        found = psutil.Process(self.process.pid).children()
        if len(found) != 1:
            raise BenchFailed(f"{len(found)} workers, not one")
        return found[0]

    def rss_mb(self) -> float:
        """The parent's resident memory in MB."""
        return psutil.Process(self.process.pid).memory_info().rss / 1e6


@contextmanager
def serving(
    place: Path, settings: Mapping[str, str], environ: Mapping[str, str]
) -> Generator[Running]:
    """Start a server in ``place`` and stop it at the end."""
    place.mkdir(parents=True, exist_ok=True)
    data, said, log = place / "data", place / "said", place / "log"
    config = place / "settings.toml"
    config.touch()
    command = [sys.executable, "-m", "app.cli.main", "--config", str(config), "serve"]
    command += ["--port", "0", "--data-dir", str(data)]
    for key, value in {"worker.engine": "scripted", **settings}.items():
        command += ["--set", f"{key}={value}"]
    began = time.monotonic()
    with said.open("wb") as out, log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=dict(environ))
    try:
        port = _port(process, said, log)
        yield Running(process, port, data, time.monotonic() - began)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(process: "subprocess.Popen[bytes]", said: Path, log: Path) -> int:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        found = _LISTENING.search(said.read_text())
        if found:
            return int(found[1])
        if process.poll() is not None:
            break
        time.sleep(0.005)
    raise BenchFailed(f"the server did not start:\n{log.read_text()[-2000:]}")


class CpuMeter:
    """Processor time of a process, all threads, in nanoseconds precision where Linux tells it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._from = self._now_s()

    def spent_s(self) -> float:
        """Since the meter was made."""
        return self._now_s() - self._from

    def _now_s(self) -> float:
        tasks = Path(f"/proc/{self._pid}/task")
        if not tasks.is_dir():
            times = psutil.Process(self._pid).cpu_times()
            return times.user + times.system
        total = 0
        for task in tasks.iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except FileNotFoundError:
                continue
        return total / 1e9
