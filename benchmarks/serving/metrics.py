"""From traces to numbers.

* Time to first token: from sending the request to the first event with text.
* Gap: between two successive events with text of one answer; all answers of a run together.
* Output tokens per second: completion tokens as the server counted them, over the time from the
  first request sent to the last event with text.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from benchmarks.serving.workload import Trace


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a load against one side.

    ``cpu_ms`` is processor time per output token by part of that side, ``others_cores`` what the
    rest of the machine used meanwhile, in processors. ``step_ms`` and ``between_ms``, where known,
    are the medians of a decode step with all rows in it and of the time to the next one.
    """

    requests: int
    prompt_tokens: int
    tokens: int
    cached_tokens_max: int
    ended_early: int
    wall_s: float
    tokens_s: float
    ttft_ms: float
    gap_p50_ms: float
    gap_p99_ms: float
    cpu_ms: Mapping[str, float]
    others_cores: float
    texts: list[str]
    step_ms: float = 0.0
    between_ms: float = 0.0

    @property
    def cpu_ms_total(self) -> float:
        """All parts together."""
        return sum(self.cpu_ms.values())


def summarise(
    traces: Sequence[Trace],
    wanted_tokens: int,
    cpu_s: Mapping[str, float],
    others_cores: float,
) -> Summary:
    """The numbers of one run; no trace may hold an error."""
    gaps = [after - before for trace in traces for before, after in pairwise(trace.events)]
    tokens = sum(trace.completion_tokens for trace in traces)
    wall_s = max(t.events[-1] for t in traces) - min(t.sent for t in traces)
    return Summary(
        requests=len(traces),
        prompt_tokens=round(statistics.mean(trace.prompt_tokens for trace in traces)),
        tokens=tokens,
        cached_tokens_max=max(trace.cached_tokens for trace in traces),
        ended_early=sum(trace.completion_tokens < wanted_tokens for trace in traces),
        wall_s=wall_s,
        tokens_s=tokens / wall_s,
        ttft_ms=1e3 * statistics.median(trace.events[0] - trace.sent for trace in traces),
        gap_p50_ms=1e3 * percentile(gaps, 50),
        gap_p99_ms=1e3 * percentile(gaps, 99),
        cpu_ms={part: 1e3 * seconds / tokens for part, seconds in cpu_s.items()},
        others_cores=others_cores,
        texts=[trace.text for trace in traces],
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the two nearest ranks."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


class Ratio(msgspec.Struct, frozen=True):
    """The median over pairs, and their range."""

    median: float
    low: float
    high: float


def ratio(
    ours: Iterable[Summary], theirs: Iterable[Summary], of: Callable[[Summary], float]
) -> Ratio:
    """``ours`` over ``theirs``, pair by pair."""
    ratios = [of(mine) / of(other) for mine, other in zip(ours, theirs, strict=True)]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def middle(summaries: Iterable[Summary], of: Callable[[Summary], float]) -> float:
    """The median over rounds."""
    return statistics.median(of(summary) for summary in summaries)
