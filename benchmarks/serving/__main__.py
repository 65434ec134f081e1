"""`python -m benchmarks.serving`: measure serving, in one run. See benchmarks/README.md."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
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

WARM_UP_TOKENS: Final = 6
"""Of each load, before it is measured: kernels are compiled and pages touched at first use."""


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
    if options.rounds:
        loads = [Load(streams, options.tokens, options.requests) for streams in options.streams]
        comparisons += _rounds(options, setup, loads, options.rounds, "pair", _main_sides)
    if options.stock_rounds:
        loads = [Load(streams, options.stock_tokens) for streams in options.streams]
        comparisons += _rounds(options, setup, loads, options.stock_rounds, "stock", _stock_sides)
    name = setup.model.name
    return Results(this_machine(), setup.threads, name, comparisons)


def _main_sides(setup: Setup, stack: ExitStack) -> list[Side]:
    """Ours, `mlx_lm.server` with the same BLAS, and the loop alone."""
    ours = _ours(setup, stack)
    served = stack.enter_context(mlx_lm_server(setup, with_blas=True))
    bare = stack.enter_context(bare_loop(setup))
    other = HttpSide(served)
    measure(other, Load(1, 4), "start", ())
    _check_blas(served, setup)
    return [ours, other, bare]


def _stock_sides(setup: Setup, stack: ExitStack) -> list[Side]:
    """Ours, and `mlx_lm.server` on the BLAS of MLX's wheel: a few tokens, since it is so slow."""
    ours = _ours(setup, stack)
    served = stack.enter_context(mlx_lm_server(setup, with_blas=False))
    other = HttpSide(served)
    measure(other, Load(1, 3), "start", ())
    _check_blas(served, setup, loaded=False)
    return [ours, other]


def _ours(setup: Setup, stack: ExitStack) -> Side:
    served = stack.enter_context(mlxq(setup))
    side = HttpSide(served)
    measure(side, Load(1, 4), "start", ())
    find_parts(served)
    _check_blas(served, setup)
    return side


def _check_blas(served: Served, setup: Setup, *, loaded: bool = True) -> None:
    if setup.blas is not None:
        process = served.parts.get("worker") or served.parts["server"]
        require_blas(process, setup.blas, loaded=loaded)


def _rounds(
    options: Options,
    setup: Setup,
    loads: Sequence[Load],
    rounds: int,
    key: str,
    start: Callable[[Setup, ExitStack], list[Side]],
) -> list[Comparison]:
    """Every round starts all sides afresh, since a process keeps for life the memory that it was
    given, some of it faster than other; then asks each side in turn, every second round in the
    opposite order."""
    found = [Comparison(load, {}) for load in loads]
    for number in range(rounds):
        with ExitStack() as stack:
            _say(f"round {number + 1} of {rounds}: starting all sides")
            sides = start(setup, stack)
            for load in loads:
                for side in sides:
                    warm_up = Load(load.streams, min(load.tokens, WARM_UP_TOKENS))
                    measure(side, warm_up, f"warm-up {number}", ())
            for comparison in found:
                _wait_for_quiet(options.quiet_s)
                _ask_all(comparison, sides, f"{key} {number}", number)
    return found


def _ask_all(comparison: Comparison, sides: Sequence[Side], key: str, number: int) -> None:
    for side in sides if number % 2 == 0 else reversed(sides):
        others = [p for other in sides if other is not side for p in other.parts.values()]
        summary = measure(side, comparison.load, key, others)
        comparison.rounds.setdefault(side.name, []).append(summary)
        _say_summary(number, comparison.load, side, summary)


def _wait_for_quiet(quiet_s: float) -> None:
    if quiet_s and not wait_for_quiet(quiet_s):
        _say(f"the machine was not quiet within {quiet_s:.0f} s; going on")


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
