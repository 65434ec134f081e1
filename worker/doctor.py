"""What the worker's machine can do: `python -m worker.doctor --cache-dir DIR --threads N --json`.

Loads the BLAS exactly as a worker would, multiplies one matrix and says how fast that was. A
process of its own, since `mlxq doctor` is the parent's and imports no MLX.
"""

import argparse
import importlib.metadata
import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from worker import blas

PROBE_SHAPE = (512, 576, 1536)
SLOW_GFLOPS = 20.0


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """`gflops` is of a float32 product on `device`; `problems` are sentences that say the cure."""

    mlx: str
    mlx_lm: str
    device: str
    blas: blas.BlasReport
    gflops: float
    compiler: str | None
    problems: list[str]


def examine(mode: blas.BlasMode, threads: int, cache_dir: Path) -> DoctorReport:
    """Load the BLAS and MLX, measure, and say what is wrong."""
    problems: list[str] = []
    try:
        report = blas.load(mode, threads, cache_dir)
    except blas.BlasUnavailable as error:
        report = blas.BlasReport("bundled", cure=f"{error}. {error.cure}")
    device, gflops = _probe()
    on_cpu = device == "cpu"
    compiler = shutil.which("g++")
    if on_cpu and report.cure:
        problems.append(f"BLAS is not optimised: {report.cure}")
    elif on_cpu and gflops < SLOW_GFLOPS:
        problems.append(
            f"float32 products reach {gflops:.0f} GFLOP/s only: stop other work on this machine, "
            "or set worker.blas_threads to 1"
        )
    return DoctorReport(
        mlx=importlib.metadata.version("mlx"),
        mlx_lm=importlib.metadata.version("mlx-lm"),
        device=device,
        blas=report,
        gflops=round(gflops, 1),
        compiler=compiler,
        problems=problems,
    )


def _probe() -> tuple[str, float]:
    """Device, and GFLOP/s of the best of three short rounds of one product."""
    import mlx.core as mx  # after the BLAS

    rows, inner, columns = PROBE_SHAPE
    left, right = mx.ones((rows, inner)), mx.ones((inner, columns))

    def product() -> None:
        mx.eval(left @ right)  # pyright: ignore[reportUnknownMemberType] - MLX's stub is untyped

    product()
    best = min(_seconds(product) for _ in range(3))
    device = "gpu" if mx.default_device() == mx.Device(mx.DeviceType.gpu) else "cpu"
    return device, 2 * rows * inner * columns / best / 1e9


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main(arguments: list[str] | None = None) -> int:
    """Print the report; 0 when all is well, 1 with problems."""
    parser = argparse.ArgumentParser(prog="worker.doctor", description="examine MLX and the BLAS")
    parser.add_argument("--cache-dir", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=0, help="0: physical cores less one")
    parser.add_argument("--blas", choices=["auto", "openblas", "none"], default="auto")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    report = examine(given.blas, given.threads, given.cache_dir)
    if given.json:
        print(json.dumps(asdict(report)))
    else:
        for name, value in asdict(report).items():
            print(f"{name}: {value}")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
