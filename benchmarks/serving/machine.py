"""What the numbers were measured on, and what else ran meanwhile."""

import os
import platform
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import psutil

_PACKAGES = ("mlx", "mlx-lm", "scipy-openblas32", "mlxq")


class Machine(msgspec.Struct, frozen=True):
    """Processor, memory, versions."""

    processor: str
    cores: int
    memory_gib: int
    system: str
    python: str
    packages: Mapping[str, str]

    def __str__(self) -> str:
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

    A part's time is split by thread: ``worker`` is then that of its first thread (in a worker, the
    engine), ``worker threads`` that of all others (the BLAS, the link, preparation).
    """

    def __init__(self, parts: Parts, resident: Sequence[psutil.Process]) -> None:
        self._parts = parts
        self._resident = resident
        self._began = time.perf_counter()
        self._machine = _busy_s()
        self._own = _used_s(psutil.Process())
        self._residents = sum(map(_used_s, resident))
        self._before = {name: _by_thread_s(process) for name, process in parts.items()}

    def stop(self, client_s: float) -> tuple[dict[str, float], float]:
        """Seconds by part, and processors that others used on average.

        ``client_s`` is what a client process took that has ended by now.
        """
        parts: dict[str, float] = {}
        for name, process in self._parts.items():
            before, after = self._before[name], _by_thread_s(process)
            parts[name] = after[0] - before[0]
            parts[f"{name} threads"] = after[1] - before[1]
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


def _by_thread_s(process: psutil.Process) -> tuple[float, float]:
    """Of the first thread, and of all others, those that have ended included."""
    total = _used_s(process)
    threads = {thread.id: thread.user_time + thread.system_time for thread in process.threads()}
    first = threads.get(process.pid, total)
    return first, max(0.0, total - first)
