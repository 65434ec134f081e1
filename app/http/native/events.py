"""A job's events as server-sent events: ``id`` and ``seq`` are their number, ``event`` their type.

Event N is the same for ever, so a reader that comes back asks for what is above the last number it
has. An ``Output`` is written as one event per numbered part, and cut where that reader stopped.
"""

from collections.abc import Sequence
from typing import Any, Final, assert_never

from app.domain.errors import JobServerError, StreamInterrupted
from app.domain.events import Ended, FollowedEvent, Output, Started
from app.domain.job import Ending
from app.domain.numbering import shown
from app.http.errors import error_answer
from app.http.native.render import failure_object, usage_object
from app.http.openai.render import json_line
from shared.ids import JobId
from shared.messages import CloseItem, Finish, OpenItem, Part, Reasoning, Text, ToolArguments

_FIRST: Final = 1
"""The number behind ``created``, which is number 0 of every job."""


class JobEvents:
    """The dialect of one reader, who has every event up to ``starting_after``; -1 is none."""

    def __init__(self, job: JobId, starting_after: int) -> None:
        self._job = job
        self._from_start = starting_after < 0
        self._next = max(starting_after + 1, _FIRST)

    def opening(self) -> bytes:
        """``created``, which is known without asking anyone."""
        return _frame("created", 0, {"job": self._job}) if self._from_start else b""

    def render(self, events: Sequence[FollowedEvent]) -> bytes:
        """The events that the reader does not have."""
        frames: list[bytes] = []
        for event in events:
            match event:
                case Output():
                    self._render_output(event, frames)
                case Started():
                    counts = {
                        "prompt_tokens": event.prompt_tokens,
                        "cached_tokens": event.cached_tokens,
                    }
                    self._add(event.seq, "started", counts, frames)
                case Ended():
                    self._add(event.seq, "ended", _ended(event.ending), frames)
                case _:
                    assert_never(event)
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def failure(self, error: JobServerError) -> bytes:
        """An event without a number. None at all when the server stops: the job may go on, and its
        reader comes back as after any cut connection."""
        if isinstance(error, StreamInterrupted):
            return b""
        return b"event: error\ndata: " + json_line(error_answer(error)) + b"\n\n"

    def _render_output(self, output: Output, frames: list[bytes]) -> None:
        seq = output.seq
        for part in output.parts:
            if shown(part):
                kind, data = _told(part)
                self._add(seq, kind, {"choice": output.choice, **data}, frames)
                seq += 1

    def _add(self, seq: int, kind: str, data: dict[str, Any], frames: list[bytes]) -> None:
        if seq >= self._next:
            frames.append(_frame(kind, seq, data))
            self._next = seq + 1


def _frame(kind: str, seq: int, data: dict[str, Any]) -> bytes:
    payload = json_line({"type": kind, "seq": seq, **data})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, kind.encode(), payload)


def _told(part: Part) -> tuple[str, dict[str, Any]]:
    match part:
        case Text():
            return "text", {"text": part.text}
        case Reasoning():
            return "reasoning", {"text": part.text}
        case ToolArguments():
            return "tool_arguments", {"text": part.text}
        case OpenItem():
            return "item_open", {"item": part.ordinal, "kind": part.kind, "name": part.name}
        case CloseItem():
            return "item_close", {"item": part.ordinal}
        case Finish():
            raise AssertionError("a finish takes no number: it is told with the ending")
        case _:
            assert_never(part)


def _ended(ending: Ending) -> dict[str, Any]:
    return {
        "state": ending.state,
        "finish_reason": ending.finish_reason,
        "usage": usage_object(ending.usage),
        "failure": failure_object(ending.failure),
    }
