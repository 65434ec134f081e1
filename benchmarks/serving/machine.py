"""What the numbers were measured on, and what else ran meanwhile."""

import os
import platform
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import psutil

BUSY_CORES = 0.1
"""Others' use of the machine, in processors, above which a run was not quiet."""

_PACKAGES = ("mlx", "mlx-lm", "scipy-openblas32", "mlxq")


class Machine(msgspec.Struct, frozen=True):
    """Processor, memory, versions."""

    processor: str
    cores: int
    memory_gib: int
    system: str
    python: str
    packages: Mapping[str, str]

    @property
    def title(self) -> str:
        """One line about it."""
        packages = ", ".join(f"{name} {number}" for name, number in self.packages.items())
        return (
            f"{self.processor}, {self.cores} cores, {self.memory_gib} GiB, {self.system}; "
            f"Python {self.python}, {packages}"
        )


def this_machine() -> Machine:
    """The machine this runs on."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / (1 << 30)),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        packages={name: _version(name) for name in _PACKAGES},
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    found = dict(line.replace("\t", "").split(":", 1) for line in lines if ":" in line)
    name = found.get("model name", platform.machine()).strip()
    family, model = found.get("cpu family", "").strip(), found.get("model", "").strip()
    return f"{name} (family {family}, model {model})" if family else name


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "from the checkout"


Parts = Mapping[str, psutil.Process]
"""The processes of what is measured, by name."""


class CpuMeter:
    """Processor time between the start and ``stop``: of the measured parts, and of everyone else.

    A part's time is split three ways, in a worker: ``worker`` is that of its first thread, which
    builds the computation; ``worker's busiest other thread`` the one MLX computes in; ``worker's
    rest`` all others (further BLAS threads, link, preparation). In the parent: loop, writer, rest.
    """

    def __init__(self, parts: Parts, resident: Sequence[psutil.Process]) -> None:
        self._parts = parts
        self._resident = resident
        self._began = time.perf_counter()
        self._machine = _busy_s()
        self._own = _used_s(psutil.Process())
        self._residents = sum(map(_used_s, resident))
        self._before = {name: _Threads.of(process) for name, process in parts.items()}

    def stop(self, client_s: float) -> tuple[dict[str, float], float]:
        """Seconds by part, and processors that others used on average.

        ``client_s`` is what a client process took that has ended by now.
        """
        parts: dict[str, float] = {}
        for name, process in self._parts.items():
            first_s, busiest_s, rest_s = _Threads.of(process).since(self._before[name])
            parts[name] = first_s
            parts[f"{name}'s busiest other thread"] = busiest_s
            parts[f"{name}'s rest"] = rest_s
        own = _used_s(psutil.Process()) - self._own
        residents = sum(map(_used_s, self._resident)) - self._residents
        accounted = sum(parts.values()) + own + residents + client_s
        elapsed = time.perf_counter() - self._began
        return parts, max(0.0, (_busy_s() - self._machine - accounted) / elapsed)


def _busy_s() -> float:
    """Processor seconds of the whole machine that were not idle, those of a hypervisor included."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def _used_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


class _Threads(msgspec.Struct, frozen=True):
    """Processor seconds of a process, and of each of its threads by number."""

    first: int
    total_s: float
    by_thread: Mapping[int, float]

    @classmethod
    def of(cls, process: psutil.Process) -> "_Threads":
        """As of now."""
        try:
            threads = {t.id: t.user_time + t.system_time for t in process.threads()}
        except psutil.AccessDenied:  # macOS keeps them from us
            threads = {}
        return cls(process.pid, _used_s(process), threads)

    def since(self, before: "_Threads") -> tuple[float, float, float]:
        """Of the first thread, of the busiest other one, and the rest, ended threads included."""
        total = self.total_s - before.total_s
        grown = {n: used - before.by_thread.get(n, 0.0) for n, used in self.by_thread.items()}
        first = grown.pop(self.first, total)
        busiest = max(grown.values(), default=0.0)
        return first, busiest, max(0.0, total - first - busiest)


def wait_for_quiet(patience_s: float) -> bool:
    """Wait until the machine is idle for a second; False when patience ends before that."""
    deadline = time.monotonic() + patience_s
    while True:
        before = _busy_s()
        time.sleep(1.0)
        if _busy_s() - before < BUSY_CORES:
            return True
        if time.monotonic() > deadline:
            return False
