"""What the session remembers of commands, so that one sent twice is obeyed once.

A command is remembered from its arrival until the ``Ack`` that covers its answer. ``Accepted``,
``Refused`` and ``Answer`` name the command they answer; the terminal event of an attempt answers
every command about it.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from shared.codec import MalformedFrame, decode_body
from shared.ids import CommandId, JobId
from shared.limits import PARTS_MAX
from shared.messages import (
    Accepted,
    Answer,
    BodyPart,
    Cancel,
    Delta,
    Event,
    Held,
    Preempt,
    Progress,
    Refused,
    RunJob,
    Seal,
)

BODIES_OPEN_MAX: Final = 4
"""Commands whose body is being put together at once; an honest parent sends one after the other."""

Attempt = tuple[JobId, int]


@dataclass(slots=True)
class CommandMemory:
    """Commands seen and not yet known to be answered."""

    highest: int = 0
    _remembered: set[CommandId] = field(default_factory=set[CommandId])
    _open: dict[Attempt, list[CommandId]] = field(default_factory=dict[Attempt, list[CommandId]])

    def knows(self, command: CommandId) -> bool:
        """Whether the command was taken before."""
        return command in self._remembered

    def take(self, command: RunJob | Cancel | Preempt | Seal) -> bool:
        """Remember the command; False when it is known already. Command 0 is never known."""
        number = command.command
        if number in self._remembered:
            return False
        if number:
            self._remembered.add(number)
            self.highest = max(self.highest, number)
        match command:
            case RunJob():
                self._open.setdefault((command.job, command.attempt), []).append(number)
            case Cancel() | Preempt():
                about = self._open.get((command.job, command.attempt))
                if about is not None:
                    about.append(number)
            case Seal():
                pass
        return True

    def answered_by(self, events: Sequence[Event]) -> tuple[CommandId, ...]:
        """The commands that these events answer; ended attempts are no longer held."""
        answered: list[CommandId] = []
        for event in events:
            if isinstance(event, Delta | Progress):
                continue
            if isinstance(event, Accepted | Answer):
                answered.append(event.command)
                continue
            answered.extend(self._open.pop((event.job, event.attempt), ()))
            if isinstance(event, Refused):
                answered.append(event.command)
        return tuple(answered)

    def forget(self, commands: Sequence[CommandId]) -> None:
        """The parent knows the answers to these."""
        self._remembered.difference_update(commands)

    def held(self) -> tuple[Held, ...]:
        """Attempts taken whose end is in no frame yet."""
        return tuple(Held(job, attempt) for job, attempt in self._open)


class BrokenBody(Exception):
    """The parts do not make the body that the command announced."""

    def __init__(self, run: RunJob, problem: str) -> None:
        super().__init__(problem)
        self.run = run


@dataclass(slots=True)
class _Body:
    run: RunJob
    pieces: list[bytes] = field(default_factory=list[bytes])


@dataclass(slots=True)
class BodyAssembly:
    """Puts the bodies of commands together that were too large for one message."""

    _bodies: dict[CommandId, _Body] = field(default_factory=dict[CommandId, _Body])

    def begin(self, run: RunJob) -> None:
        """Expect this command's parts.

        Raises:
            BrokenBody: when it announces no sensible number of parts, or too many bodies are open.
        """
        if not 1 <= run.body_parts <= PARTS_MAX:
            raise BrokenBody(run, f"{run.body_parts} body parts, at most {PARTS_MAX} are taken")
        if len(self._bodies) >= BODIES_OPEN_MAX and run.command not in self._bodies:
            raise BrokenBody(run, f"{BODIES_OPEN_MAX} bodies are incomplete already")
        self._bodies[run.command] = _Body(run)

    def add(self, part: BodyPart) -> RunJob | None:
        """The whole command with its last part, None before. Parts of nothing are ignored.

        Raises:
            BrokenBody: when a part is missing or the digest differs.
        """
        body = self._bodies.get(part.command)
        if body is None:
            return None
        if part.n != len(body.pieces) or part.of != body.run.body_parts:
            del self._bodies[part.command]
            raise BrokenBody(body.run, f"part {part.n} came, {len(body.pieces)} was due")
        body.pieces.append(part.data)
        if len(body.pieces) < part.of:
            return None
        del self._bodies[part.command]
        return _whole(body)

    def drop(self, job: JobId, attempt: int) -> RunJob | None:
        """Give up the command of this attempt; None if none is open."""
        for body in self._bodies.values():
            if (body.run.job, body.run.attempt) == (job, attempt):
                return self._bodies.pop(body.run.command).run
        return None

    def clear(self) -> None:
        """Give up all: the parent sends unanswered commands again from their beginning."""
        self._bodies.clear()


def _whole(body: _Body) -> RunJob:
    data = b"".join(body.pieces)
    if hashlib.sha256(data).hexdigest() != body.run.body_digest:
        raise BrokenBody(body.run, "the body's digest differs from the one announced")
    try:
        return msgspec.structs.replace(body.run, request=decode_body(data))
    except MalformedFrame as error:
        raise BrokenBody(body.run, "the body is no request") from error
