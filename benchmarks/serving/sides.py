"""The sides of a comparison: two servers over HTTP and the loop alone, asked in the same way."""

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol

import msgspec
import psutil

from app.services.worker_environment import worker_environment
from app.settings import Settings
from benchmarks.serving.bare import BareResult, BareRun, BareStart, Step
from benchmarks.serving.client import ClientResult, ClientRun
from benchmarks.serving.machine import CpuMeter, Parts
from benchmarks.serving.metrics import Summary, percentile, summarise
from benchmarks.serving.servers import BenchFailed, Served, Setup
from benchmarks.serving.workload import Chat, Load, Trace, chats
from shared.launch import EngineSettings

RUN_TIMEOUT_S: Final = 900.0
"""For one run of a load. The longest by far: eight streams on the BLAS of the wheel, a minute."""


class Answer(msgspec.Struct, frozen=True):
    """What a side made of a load."""

    traces: list[Trace]
    client_cpu_s: float = 0.0
    steps: Sequence[Step] = ()


class Side(Protocol):
    """Something that answers conversations."""

    @property
    def name(self) -> str:
        """What the tables call it."""
        ...

    @property
    def parts(self) -> Parts:
        """Its processes."""
        ...

    def ask(self, load: Load, asked: list[list[Chat]]) -> Answer:
        """Ask all of it and wait for the end."""
        ...

    def log_tail(self) -> str:
        """What it said last, for a failure."""
        ...


class HttpSide:
    """A server, asked by a client process."""

    def __init__(self, served: Served) -> None:
        self._served = served

    @property
    def name(self) -> str:
        """What the tables call it."""
        return self._served.name

    @property
    def parts(self) -> Parts:
        """Its processes, those found so far."""
        return self._served.parts

    def ask(self, load: Load, asked: list[list[Chat]]) -> Answer:
        """Start a client and let it ask."""
        at = self._served
        run = ClientRun(at.host, at.port, at.model, load, asked, RUN_TIMEOUT_S)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.serving.client"],
            input=msgspec.json.encode(run),
            stdout=subprocess.PIPE,
            check=True,
        )
        result = msgspec.json.decode(done.stdout, type=ClientResult)
        return Answer(result.traces, result.cpu_s)

    def log_tail(self) -> str:
        """The server's logs."""
        return self._served.log_tail()


class BareSide:
    """The loop without a server, in a process of its own."""

    name = "bare loop"

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log
        self.parts: Parts = {"loop": psutil.Process(process.pid)}

    def ask(self, load: Load, asked: list[list[Chat]]) -> Answer:
        """One line to it, one line back."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(BareRun(load, asked)) + b"\n")
        self._process.stdin.flush()
        result = msgspec.json.decode(self.answer(), type=BareResult)
        return Answer(result.traces, steps=result.steps)

    def answer(self) -> bytes:
        """Its next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchFailed(f"{self.name} has ended\n{self.log_tail()}")
        return line

    def log_tail(self) -> str:
        """What it said on standard error."""
        return self._log.read_text(errors="replace")[-3000:]


@contextmanager
def bare_loop(setup: Setup) -> Generator[BareSide]:
    """The loop with the settings that `mlxq serve` gives a worker."""
    worker = Settings().worker
    engine = EngineSettings(
        model_path=str(setup.model),
        rows=worker.rows,
        prefetch=worker.prefetch,
        prefill_chunk_tokens=worker.prefill_chunk_tokens,
        blas_threads=setup.threads,
    )
    start = BareStart(engine, str(setup.cache_dir), worker.prepare_threads)
    log = setup.work_dir / "bare.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.serving.bare"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=worker_environment(os.environ),
        )
    assert process.stdin is not None
    try:
        process.stdin.write(msgspec.json.encode(start) + b"\n")
        process.stdin.flush()
        side = BareSide(process, log)
        side.answer()
        yield side
    finally:
        process.kill()
        process.wait()


def measure(side: Side, load: Load, key: str, resident: Sequence[psutil.Process]) -> Summary:
    """Ask once and summarise. ``resident`` are processes of other sides, idle by intention.

    Raises:
        BenchFailed: when a request failed.
    """
    meter = CpuMeter(side.parts, resident)
    answer = side.ask(load, chats(load, key))
    cpu_s, others_cores = meter.stop(answer.client_cpu_s)
    _check(side, answer.traces)
    summary = summarise(answer.traces, load.tokens, cpu_s, others_cores)
    if not answer.steps:
        return summary
    step_ms, between_ms = _steps(answer.steps, load.streams)
    return msgspec.structs.replace(summary, step_ms=step_ms, between_ms=between_ms)


def _check(side: Side, traces: Sequence[Trace]) -> None:
    errors = [trace.error for trace in traces if trace.error is not None]
    errors += ["fewer than two events" for t in traces if t.error is None and len(t.events) < 2]
    if errors:
        many = f"{len(errors)} of {len(traces)} requests to {side.name} failed"
        raise BenchFailed(f"{many}: {errors[0]}\n{side.log_tail()}")


def _steps(steps: Sequence[Step], rows: int) -> tuple[float, float]:
    """Medians in ms: a decode step with all rows, and from its end to the next step's beginning."""
    full = [(a, b) for a, b in pairwise(steps) if a.tokens == rows and not a.chunks]
    if not full:
        return 0.0, 0.0
    step_s = percentile([a.ended - a.began for a, _ in full], 50)
    return 1e3 * step_s, 1e3 * percentile([b.began - a.ended for a, b in full], 50)
