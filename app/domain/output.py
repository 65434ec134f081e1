"""What a job has said so far: tokens, items and text per choice. Pure.

Built from deltas as they are folded, or from the journal's rows: the same either way. It answers
what usage counts, what a resuming attempt must be told, and what a person sees.
"""

import hashlib
from collections.abc import Iterable
from typing import assert_never

import msgspec

from app.domain.view import ChoiceView, OutputItem
from shared.messages import (
    ChoiceResume,
    CloseItem,
    Finish,
    ItemKind,
    OpenItem,
    Part,
    Reasoning,
    Text,
    ToolArguments,
)


class OutOfOrder(Exception):
    """Something came before what must come first: tokens before their predecessors, or before the
    job was accepted."""


class _Item(msgspec.Struct):
    ordinal: int
    kind: ItemKind
    name: str | None
    pieces: list[str] = []
    closed: bool = False

    def view(self) -> OutputItem:
        return OutputItem(
            ordinal=self.ordinal,
            kind=self.kind,
            name=self.name,
            text="".join(self.pieces),
            closed=self.closed,
        )


class ChoiceOutput(msgspec.Struct):
    """One choice. ``skipped`` counts tokens known by number only: those of an attached job that an
    earlier parent had in memory."""

    skipped: int = 0
    tokens: list[int] = []
    items: list[_Item] = []
    finish: Finish | None = None

    @property
    def count(self) -> int:
        """Completion tokens so far, which is the index of the next one."""
        return self.skipped + len(self.tokens)

    def show(self, part: Part) -> None:
        """Take one part."""
        match part:
            case OpenItem():
                self.items.append(_Item(part.ordinal, part.kind, part.name))
            case Text() | Reasoning() | ToolArguments():
                if self.items:
                    self.items[-1].pieces.append(part.text)
            case CloseItem():
                for item in self.items:
                    item.closed = item.closed or item.ordinal == part.ordinal
            case Finish():
                self.finish = part
            case _:
                assert_never(part)

    def resume(self, choice: int) -> ChoiceResume:
        """What an attempt that goes on must be told."""
        text = "".join(piece for item in self.items for piece in item.pieces)
        return ChoiceResume(
            choice=choice,
            tokens=tuple(self.tokens),
            finished=self.finish is not None,
            items=len(self.items),
            emitted_chars=len(text),
            emitted_digest=hashlib.sha256(text.encode()).hexdigest() if text else "",
        )


class JobOutput:
    """All choices of one job."""

    __slots__ = ("choices",)

    def __init__(self) -> None:
        self.choices: dict[int, ChoiceOutput] = {}

    def apply(self, choice: int, index: int, tokens: Iterable[int], parts: Iterable[Part]) -> bool:
        """Take a delta; False when its tokens are known already and it changes nothing.

        Raises:
            OutOfOrder: when tokens before ``index`` are missing.
        """
        output = self.choices.get(choice)
        if output is None:
            output = self.choices[choice] = ChoiceOutput()
        count = output.count
        if index > count:
            raise OutOfOrder(f"tokens {count} to {index - 1} of choice {choice} are missing")
        if index < count:
            return False
        output.tokens.extend(tokens)
        for part in parts:
            output.show(part)
        return True

    def skip(self, counts: dict[int, int]) -> None:
        """These many tokens of each choice are known by number only."""
        for choice, count in counts.items():
            self.choices[choice] = ChoiceOutput(skipped=count)

    @property
    def completion_tokens(self) -> int:
        """Tokens of all choices."""
        count = 0
        for output in self.choices.values():
            count += output.count
        return count

    @property
    def finish_reason(self) -> str | None:
        """Why the first choice ended, once it has."""
        first = self.choices.get(0)
        return first.finish.reason if first is not None and first.finish is not None else None

    def resume(self) -> tuple[ChoiceResume, ...]:
        """Where each choice stands; empty when nothing was computed yet."""
        return tuple(output.resume(choice) for choice, output in sorted(self.choices.items()))

    def view(self) -> tuple[ChoiceView, ...]:
        """What people see."""
        return tuple(
            ChoiceView(
                choice=choice,
                items=tuple(item.view() for item in output.items),
                finish_reason=output.finish.reason if output.finish else None,
            )
            for choice, output in sorted(self.choices.items())
        )
