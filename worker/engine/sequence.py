"""One choice of one job: tokens in, the parts a follower is shown out.

Nothing here computes: the same tokens give the same parts, whichever engine drew them. That is what
lets a resumed attempt rebuild, by replaying tokens in silence, exactly the state its predecessor
had when it died.
"""

import hashlib
from collections.abc import Iterable, Set

from shared.messages import CloseItem, Finish, FinishReason, OpenItem, Part, Text
from worker.engine.engine import Detokenizer
from worker.engine.stops import StopStrings


class ResumeDiverged(ValueError):
    """The replayed tokens do not give the text that followers were already shown."""


def text_digest(text: str) -> str:
    """The digest by which both sides compare shown text: hexadecimal SHA-256 of its UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


class Sequence:
    """The text state of one choice.

    Args:
        detokenizer: a fresh one; it belongs to the sequence from now on.
        eos: tokens that end the answer and are never shown.
        stops: strings that end the answer and are never shown.
    """

    __slots__ = ("_detokenizer", "_eos", "_held", "_items", "_shown", "_stops", "finish", "tokens")

    def __init__(
        self, detokenizer: Detokenizer, eos: Set[int], stops: StopStrings | None = None
    ) -> None:
        self._detokenizer = detokenizer
        self._eos = eos
        self._stops = stops or StopStrings()
        self._held = ""
        self._items = 0
        self._shown: list[str] = []
        self.tokens = 0
        self.finish: Finish | None = None

    @property
    def finished(self) -> bool:
        """Whether the choice has ended: by the engine, or by a stop string, of which the engine
        does not know, so that its row must be removed."""
        return self.finish is not None

    @property
    def shown(self) -> str:
        """All text released so far."""
        return "".join(self._shown)

    @property
    def items(self) -> int:
        """Output items opened so far."""
        return self._items

    def push(self, token: int, finish: FinishReason | None = None) -> tuple[Part, ...]:
        """Take the next token; ``finish`` is set with the last one.

        Returns the parts that became certain, none while text is held back. The token counts in
        any case.
        """
        if self.finish is not None:
            raise RuntimeError("a finished sequence takes no tokens")
        self.tokens += 1
        ended = finish is not None or token in self._eos
        text = "" if token in self._eos else self._detokenizer.push(token)
        if ended:
            text += self._detokenizer.flush()
        reason: FinishReason = finish or "stop"
        return self._take(text, reason if ended else None)

    def close(self, reason: FinishReason) -> tuple[Part, ...]:
        """End the choice without a further token; text held back is released."""
        if self.finish is not None:
            return ()
        return self._take(self._detokenizer.flush(), reason)

    def replay(self, tokens: Iterable[int]) -> tuple[Part, ...]:
        """Take the tokens of earlier attempts, up to the end if they reach one.

        Returns their parts, which were shown before: hand them to ``unshown``.
        """
        parts: list[Part] = []
        for token in tokens:
            if self.finish is not None:
                break
            parts.extend(self.push(token))
        return tuple(parts)

    def resume(
        self, tokens: Iterable[int], *, items: int, chars: int, digest: str
    ) -> tuple[Part, ...]:
        """Rebuild the state from the tokens of earlier attempts, of which ``items`` output items
        and ``chars`` characters with this digest were shown.

        Returns the parts that were not shown yet.

        Raises:
            ResumeDiverged: when the tokens give another beginning.
        """
        parts = self.replay(tokens)
        shown = self.shown
        if len(shown) < chars or (chars and text_digest(shown[:chars]) != digest):
            raise ResumeDiverged("the replayed text differs from what was shown")
        if items > self._items:
            raise ResumeDiverged("the replayed output has fewer items than were shown")
        return tuple(_unshown(parts, items, chars))

    def _take(self, text: str, reason: FinishReason | None) -> tuple[Part, ...]:
        """Release what no stop string can claim any more, and end if there is a reason to."""
        pending = self._held + text
        match = self._stops.find(pending) if self._stops and text else None
        if match is not None:
            return self._release(pending[: match.start], Finish("stop", match.stop))
        if reason is not None:
            return self._release(pending, Finish(reason))
        held = self._stops.held(pending) if self._stops else 0
        self._held = pending[len(pending) - held :]
        return self._release(pending[: len(pending) - held], None)

    def _release(self, text: str, finish: Finish | None) -> tuple[Part, ...]:
        parts: list[Part] = []
        if self._items == 0 and (text or finish):
            parts.append(OpenItem(0, "message"))
            self._items = 1
        if text:
            parts.append(Text(text))
            self._shown.append(text)
        if finish is not None:
            self._held = ""
            self.finish = finish
            parts += (CloseItem(0), finish)
        return tuple(parts)


def _unshown(parts: Iterable[Part], items: int, chars: int) -> Iterable[Part]:
    """The parts after the first ``items`` items and ``chars`` characters.

    Closing parts are kept: a choice whose end was shown is not resumed.
    """
    for part in parts:
        match part:
            case OpenItem(ordinal=ordinal) if ordinal < items:
                continue
            case Text(text=text):
                rest = text[chars:]
                chars = max(0, chars - len(text))
                if rest:
                    yield Text(rest)
            case _:
                yield part
