"""Tables and goals from the results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.serving.machine import BUSY_CORES, Machine
from benchmarks.serving.metrics import Ratio, Summary, middle, ratio
from benchmarks.serving.workload import Load

OURS: Final = "mlxq"
THEIRS: Final = "mlx_lm.server"
STOCK: Final = "mlx_lm.server as installed"
BARE: Final = "bare loop"

_BEGIN: Final = "<!-- results: written by the runner -->"
_END: Final = "<!-- end of results -->"

_MEASURES: Final[Mapping[str, Callable[[Summary], float]]] = {
    "output tok/s": lambda s: s.tokens_s,
    "TTFT p50, ms": lambda s: s.ttft_ms,
    "gap p50, ms": lambda s: s.gap_p50_ms,
    "gap p99, ms": lambda s: s.gap_p99_ms,
    "CPU ms per token": lambda s: s.cpu_ms_total,
}


class Comparison(msgspec.Struct, frozen=True):
    """One load, and the rounds of each side in order."""

    load: Load
    rounds: dict[str, list[Summary]]

    def pairs(self, other: str) -> int:
        """Pairs with this side."""
        return len(self.rounds.get(other, ()))


class Results(msgspec.Struct, frozen=True):
    """All that was measured."""

    machine: Machine
    threads: int
    model: str
    comparisons: list[Comparison]


class Goal(msgspec.Struct, frozen=True):
    """Something the numbers should be, and what they are."""

    text: str
    value: float
    bound: float

    @property
    def met(self) -> bool:
        """Whether the value reaches the bound."""
        return self.value >= self.bound


def table(comparison: Comparison) -> list[str]:
    """One load as a Markdown table: medians of each side, and ratios of the pairs."""
    sides = list(comparison.rounds)
    others = [side for side in sides if side != OURS]
    head = [comparison.load.title, *sides, *(f"mlxq / {other}" for other in others)]
    lines = [_row(head), _row(["---"] * len(head))]
    for name, of in _MEASURES.items():
        cells = [name, *(f"{middle(comparison.rounds[side], of):.1f}" for side in sides)]
        cells += [_ratio_cell(_ratio(comparison, other, of)) for other in others]
        lines.append(_row(cells))
    return lines


def notes(comparison: Comparison) -> Iterator[str]:
    """What one should know beside the table."""
    for side, rounds in comparison.rounds.items():
        parts = {part for summary in rounds for part in summary.cpu_ms}
        if side == OURS:
            cpu = [f"{part} {_cpu_of(rounds, part):.2f}" for part in sorted(parts)]
            yield f"mlxq's CPU ms per token: {', '.join(cpu)}"
        if side == BARE:
            step = middle(rounds, lambda s: s.step_ms)
            between = middle(rounds, lambda s: s.between_ms)
            gap = middle(comparison.rounds[OURS], lambda s: s.gap_p50_ms)
            yield (
                f"a decode step of the bare loop {step:.2f} ms, to the next {between:.2f} ms; "
                f"a gap of mlxq {gap:.2f} ms"
            )
        yield from _oddities(side, rounds)
    yield from _same_answers(comparison)


def _cpu_of(rounds: Sequence[Summary], part: str) -> float:
    return middle(rounds, lambda summary: summary.cpu_ms[part])


def _oddities(side: str, rounds: Sequence[Summary]) -> Iterator[str]:
    cached = max(summary.cached_tokens_max for summary in rounds)
    if cached:
        yield f"{side}: up to {cached} prompt tokens came from its cache"
    if early := sum(summary.ended_early for summary in rounds):
        yield f"{side}: {early} answers ended before the wanted length"
    if busy := [s.others_cores for s in rounds if s.others_cores > BUSY_CORES]:
        share = f"up to {max(busy):.2f} cores"
        yield f"{side}: others used {share} during {len(busy)} of {len(rounds)} rounds: not quiet"


def _same_answers(comparison: Comparison) -> Iterator[str]:
    ours = comparison.rounds[OURS]
    for side, rounds in comparison.rounds.items():
        if side == OURS:
            continue
        pairs = [
            a == b
            for mine, other in zip(ours, rounds, strict=True)
            for a, b in zip(mine.texts, other.texts, strict=True)
        ]
        yield f"{sum(pairs)} of {len(pairs)} answers equal those of {side} in every character"


def goals(results: Results) -> list[Goal]:
    """What is wanted, for the loads that were measured."""
    found: list[Goal] = []
    for comparison in results.comparisons:
        streams = comparison.load.streams
        rows = "1 stream" if streams == 1 else f"{streams} streams"
        if THEIRS in comparison.rounds:
            speed = _ratio(comparison, THEIRS, lambda s: s.tokens_s).median
            for bound in [1.0, 1.2] if streams == 8 else [1.0]:
                text = f"{rows}: output tok/s at least {bound} times {THEIRS}"
                found.append(Goal(text, speed, bound))
        if BARE in comparison.rounds:
            speed = _ratio(comparison, BARE, lambda s: s.tokens_s).median
            text = (
                f"{rows}: output tok/s at least 0.95 times the {BARE} (serving costs 5 % at most)"
            )
            found.append(Goal(text, speed, 0.95))
    return found


def text(results: Results) -> str:
    """Everything for a terminal, which is Markdown too."""
    first = next(iter(results.comparisons[0].rounds.values()))[0]
    lines = [
        f"{results.machine.title}.",
        f"{results.model} in float32, {results.threads} BLAS thread(s), prompts of about "
        f"{first.prompt_tokens} tokens.",
    ]
    for comparison in results.comparisons:
        other = next(side for side in comparison.rounds if side != OURS)
        lines += ["", *table(comparison), "", f"- rounds: {comparison.pairs(other)}"]
        lines += [f"- {note}" for note in notes(comparison)]
    lines += ["", "| goal | measured | |", "|---|---|---|"]
    for goal in goals(results):
        verdict = "met" if goal.met else "**missed**"
        lines.append(_row([goal.text, f"{goal.value:.2f}", verdict]))
    return "\n".join(lines)


def write_table(results: Results, readme: Path) -> None:
    """Replace what stands between the markers."""
    before, _, rest = readme.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{readme} lacks the markers")
    block = f"{before}{_BEGIN}\n\n{text(results)}\n\n{_END}{after}"
    readme.write_text(block, encoding="utf-8")


def _ratio(comparison: Comparison, other: str, of: Callable[[Summary], float]) -> Ratio:
    return ratio(comparison.rounds[OURS], comparison.rounds[other], of)


def _ratio_cell(found: Ratio) -> str:
    return f"{found.median:.2f} ({found.low:.2f} to {found.high:.2f})"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
