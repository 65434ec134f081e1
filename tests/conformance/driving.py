"""Running an engine to the end, and what its rows said on the way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from shared.sampling import SamplingParams
from worker.engine.engine import Engine, RowFailed, RowId, RowSpec, StepResult

STEPS_MAX: Final = 5_000


@dataclass
class Heard:
    """What one row said."""

    tokens: list[int] = field(default_factory=list[int])
    progress: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    finish: str | None = None


class Driver:
    """Steps an engine and checks what must hold of every step."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.heard: dict[RowId, Heard] = {}
        self.failed: list[RowFailed] = []

    def insert(self, spec: RowSpec) -> None:
        self.engine.insert(spec)
        self.heard[spec.row] = Heard()

    def step(self) -> StepResult:
        result = self.engine.step()
        rows = [token.row for token in result.tokens]
        assert len(rows) == len(set(rows)), "more than one token of a row in a step"
        for progress in result.progress:
            self.heard[progress.row].progress.append((progress.done, progress.total))
        for token in result.tokens:
            heard = self.heard[token.row]
            assert heard.finish is None, "a token after the end"
            heard.tokens.append(token.token)
            heard.finish = token.finish
        self.failed += result.failed
        return result

    def until_tokens(self, row: int, count: int) -> None:
        for _ in range(STEPS_MAX):
            if len(self.heard[RowId(row)].tokens) >= count:
                return
            self.step()
        raise AssertionError("the row does not get there")

    def finish(self) -> Mapping[RowId, Heard]:
        for _ in range(STEPS_MAX):
            if not self.engine.rows:
                return self.heard
            self.step()
        raise AssertionError("the engine does not come to an end")

    def alone(self, spec: RowSpec) -> list[int]:
        """The tokens of this row when it runs alone."""
        self.insert(spec)
        return self.finish()[spec.row].tokens


def make_spec(
    row: int,
    prompt: Sequence[int] = tuple(range(1, 40)),
    *,
    sampling: SamplingParams | None = None,
    max_tokens: int = 12,
    choice: int = 0,
    replayed: Sequence[int] = (),
) -> RowSpec:
    return RowSpec(
        row=RowId(row),
        prompt=prompt,
        sampling=sampling or SamplingParams(seed=7, temperature=0.0),
        max_tokens=max_tokens,
        choice=choice,
        replayed=replayed,
    )
