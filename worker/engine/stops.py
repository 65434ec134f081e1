"""Stop strings: where a text ends, and how much of it must be held back until that is known."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopMatch:
    """A stop string begins at ``start``: what is shown of the text ends there.

    ``stop`` is None for a string that the model's template stops at, not the request.
    """

    start: int
    stop: str | None


class StopStrings:
    """An immutable set of stop strings.

    The match that is complete first wins, and of those complete at the same character the longest,
    which is also the leftmost. So the outcome does not depend on how the text was cut into pieces.

    Args:
        stops: those of the request.
        silent: those of the model (`EngineInfo.turn_stops`), which end the text unmentioned.
    """

    __slots__ = ("_first_chars", "_held_max", "_silent", "_stops")

    def __init__(self, stops: Iterable[str] = (), silent: Iterable[str] = ()) -> None:
        asked = {stop for stop in stops if stop}
        self._silent = frozenset(silent) - asked
        self._stops = tuple(sorted(asked | self._silent, key=len, reverse=True))
        self._first_chars = frozenset(stop[0] for stop in self._stops)
        self._held_max = max((len(stop) for stop in self._stops), default=1) - 1

    def __bool__(self) -> bool:
        return bool(self._stops)

    def find(self, text: str) -> StopMatch | None:
        """The match that ends this text, if it holds one."""
        best: tuple[int, StopMatch] | None = None
        for stop in self._stops:
            start = text.find(stop)
            if start >= 0 and (best is None or start + len(stop) < best[0]):
                named = None if stop in self._silent else stop
                best = start + len(stop), StopMatch(start, named)
        return None if best is None else best[1]

    def held(self, text: str) -> int:
        """How many characters at the end may still become a stop string.

        That is the longest trailing run which is a proper prefix of one. A whole stop string is a
        match and no run of this kind.
        """
        for start in range(max(0, len(text) - self._held_max), len(text)):
            if text[start] in self._first_chars:
                run = text[start:]
                if any(len(run) < len(stop) and stop.startswith(run) for stop in self._stops):
                    return len(run)
        return 0
