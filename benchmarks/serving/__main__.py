"""`python -m benchmarks.serving`: measure serving, in one run. See benchmarks/README.md."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from app.settings import DEFAULT_MODEL, Settings
from benchmarks.serving import report
from benchmarks.serving.dense_model import dense_model
from benchmarks.serving.machine import this_machine, wait_for_quiet
from benchmarks.serving.metrics import Summary
from benchmarks.serving.report import Comparison, Results
from benchmarks.serving.servers import (
    BenchFailed,
    Served,
    Setup,
    find_parts,
    mlx_lm_server,
    mlxq,
    require_blas,
)
from benchmarks.serving.sides import HttpSide, Side, bare_loop, measure
from benchmarks.serving.workload import Load
from worker import blas

README: Final = Path(__file__).parents[1] / "README.md"


class Options(argparse.Namespace):
    """The command line."""

    rounds: int
    stock_rounds: int
    streams: list[int]
    tokens: int
    stock_tokens: int
    requests: int
    threads: int
    quiet_s: float
    model: str
    json: Path | None
    write_table: bool


def main() -> int:
    """Measure, print, and write where asked."""
    options = _options()
    try:
        with tempfile.TemporaryDirectory(prefix="mlxq-bench-") as place:
            results = _measure_all(options, _setup(options, Path(place)))
    except (BenchFailed, blas.BlasUnavailable, subprocess.SubprocessError) as error:
        _say(f"the measurement failed: {error}")
        return 1
    except KeyboardInterrupt:
        _say("interrupted; nothing was written")
        return 130
    print(report.text(results))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    if options.write_table:
        report.write_table(results, README)
    return 0


def _measure_all(options: Options, setup: Setup) -> Results:
    comparisons: list[Comparison] = []
    with mlxq(setup) as served:
        ours = HttpSide(served)
        _say("starting mlxq's worker")
        measure(ours, Load(1, 4), "start", ())
        find_parts(served)
        _check_blas(served, setup)
        if options.rounds:
            comparisons += _main_part(options, setup, ours)
        if options.stock_rounds:
            comparisons += _stock_part(options, setup, ours)
    name = setup.model.name
    return Results(this_machine(), setup.threads, name, comparisons)


def _main_part(options: Options, setup: Setup, ours: HttpSide) -> list[Comparison]:
    """Against `mlx_lm.server` with the same BLAS, and against the loop alone."""
    loads = [Load(streams, options.tokens, options.requests) for streams in options.streams]
    with ExitStack() as stack:
        served = stack.enter_context(mlx_lm_server(setup, with_blas=True))
        _say("loading the bare loop")
        sides: list[Side] = [ours, HttpSide(served), stack.enter_context(bare_loop(setup))]
        _warm_up(sides, loads)
        _check_blas(served, setup)
        return _rounds(sides, loads, options.rounds, "pair", options.quiet_s)


def _stock_part(options: Options, setup: Setup, ours: HttpSide) -> list[Comparison]:
    """Against `mlx_lm.server` on the BLAS of MLX's wheel: a few tokens, since it is so slow."""
    loads = [Load(streams, options.stock_tokens) for streams in options.streams]
    with mlx_lm_server(setup, with_blas=False) as served:
        sides: list[Side] = [ours, HttpSide(served)]
        _warm_up(sides, [Load(1, 3)])
        _check_blas(served, setup, loaded=False)
        return _rounds(sides, loads, options.stock_rounds, "stock", options.quiet_s)


def _check_blas(served: Served, setup: Setup, *, loaded: bool = True) -> None:
    if setup.blas is not None:
        process = served.parts.get("worker") or served.parts["server"]
        require_blas(process, setup.blas, loaded=loaded)


def _warm_up(sides: Sequence[Side], loads: Sequence[Load]) -> None:
    """Each load once on each side: kernels are compiled at their first use."""
    for load in loads:
        for side in sides:
            _say(f"warming up {side.name}: {load.title}")
            measure(side, load, "warm-up", ())


def _rounds(
    sides: Sequence[Side], loads: Sequence[Load], rounds: int, key: str, quiet_s: float
) -> list[Comparison]:
    """Every round asks each side in turn, every second one in the opposite order."""
    found = [Comparison(load, {side.name: [] for side in sides}) for load in loads]
    for number in range(rounds):
        for comparison in found:
            if quiet_s and not wait_for_quiet(quiet_s):
                _say(f"the machine was not quiet within {quiet_s:.0f} s; going on")
            for side in sides if number % 2 == 0 else reversed(sides):
                others = [p for other in sides if other is not side for p in other.parts.values()]
                summary = measure(side, comparison.load, f"{key} {number}", others)
                comparison.rounds[side.name].append(summary)
                _say_summary(number, comparison.load, side, summary)
    return found


def _say_summary(number: int, load: Load, side: Side, summary: Summary) -> None:
    _say(
        f"round {number + 1}, {load.title}, {side.name}: {summary.tokens_s:.1f} tok/s, "
        f"TTFT {summary.ttft_ms:.0f} ms, gaps {summary.gap_p50_ms:.1f} / "
        f"{summary.gap_p99_ms:.1f} ms, others {summary.others_cores:.2f} cores"
    )


def _setup(options: Options, place: Path) -> Setup:
    cache_dir = Settings().storage.cache_dir
    model = _model_path(options.model)
    library, threads = None, 1
    if sys.platform == "linux":
        library = blas.prepare(cache_dir)
        threads = options.threads or blas.default_threads()
    dense = dense_model(model, cache_dir / "benchmarks")
    return Setup(model, dense, cache_dir, threads, library, place)


def _model_path(model: str) -> Path:
    if Path(model).is_dir():
        return Path(model).resolve()
    command = [sys.executable, "-m", "app.cli.main", "models", "show", model, "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    if shown.returncode:
        raise BenchFailed(f"{shown.stderr.strip()} (`make model` fetches the default model)")
    entry: dict[str, Any] = json.loads(shown.stdout)
    return Path(entry["path"])


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=5, help="pairs of each load; 0 leaves this part out")
    add("--tokens", type=int, default=64, help="completion tokens per request")
    add("--streams", type=_numbers, default=[1, 8], help="streams at once, such as 1,8")
    add("--requests", type=int, default=1, help="requests of each stream, one after the other")
    add("--stock-rounds", type=int, default=3, help="pairs against mlx_lm.server as installed")
    add("--stock-tokens", type=int, default=8, help="completion tokens per request there")
    add("--threads", type=int, default=0, help="BLAS threads of all; 0: as mlxq chooses")
    add("--quiet-s", type=float, default=0.0, help="wait so long for a quiet machine, each time")
    add("--model", default=DEFAULT_MODEL, help="a model id of mlxq, or a directory")
    add("--json", type=Path, help="write everything that was measured to this file")
    add("--write-table", action="store_true", help="put the results into benchmarks/README.md")
    return parser.parse_args(namespace=Options())


def _numbers(value: str) -> list[int]:
    return [int(number) for number in value.split(",")]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
