"""What was measured, beside what was wanted."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One number. ``goal`` None: only told. ``better`` says which side of the goal is good."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    better: Literal["less", "more"] = "less"
    note: str = ""

    @property
    def reached(self) -> float | None:
        """Share of the goal: 1 and above is met, under 0.5 is under half of it."""
        if self.goal is None or not self.value:
            return None
        return self.goal / self.value if self.better == "less" else self.value / self.goal


class Results(msgspec.Struct, frozen=True):
    """One run."""

    machine: dict[str, str]
    figures: list[Figure]


def table(figures: Iterable[Figure]) -> list[str]:
    """Lines of a Markdown table."""
    lines = ["| what | measured | goal | |", "|---|---|---|---|"]
    return [*lines, *(_line(figure) for figure in figures)]


def _line(figure: Figure) -> str:
    sign = "≤" if figure.better == "less" else "≥"
    goal = "" if figure.goal is None else f"{sign} {_number(figure.goal)} {figure.unit}"
    note = f" ({figure.note})" if figure.note else ""
    value = f"{_number(figure.value)} {figure.unit}"
    return f"| {figure.name}{note} | {value} | {goal} | {_verdict(figure)} |"


def _verdict(figure: Figure) -> str:
    reached = figure.reached
    if reached is None:
        return ""
    if reached >= 1:
        return "met"
    return f"{100 * reached:.0f} %" if reached >= 0.5 else f"**{100 * reached:.0f} %**"


def _number(value: float) -> str:
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share (0 to 1) of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def middle(values: Sequence[float]) -> float:
    """The median."""
    return percentile(values, 0.5)
