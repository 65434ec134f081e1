"""Commands as they come in: each obeyed once, bodies put together, broken ones answered here."""

from collections.abc import Sequence
from typing import Final

from shared.failures import Failure
from shared.ids import CommandId
from shared.messages import (
    BodyPart,
    Cancel,
    Event,
    Held,
    Preempt,
    Refused,
    RunJob,
    Seal,
    Stopped,
)
from worker.inbox import Command
from worker.link.commands import BodyAssembly, BrokenBody, CommandMemory

Taken = tuple[Sequence[Command], Sequence[Event]]
"""What is for the engine, and what is answered without it."""

_NOTHING: Final[Taken] = ((), ())


class CommandDesk:
    """The session's side for commands; what it remembers travels with the frames' acks."""

    __slots__ = ("_bodies", "_memory", "repeated")

    def __init__(self) -> None:
        self.repeated = 0
        self._memory = CommandMemory()
        self._bodies = BodyAssembly()

    @property
    def highest(self) -> CommandId:
        """The highest command taken."""
        return CommandId(self._memory.highest)

    @property
    def held(self) -> tuple[Held, ...]:
        """Attempts taken whose end is in no frame yet."""
        return self._memory.held()

    def receive(self, message: RunJob | BodyPart | Cancel | Preempt | Seal) -> Taken:
        """Take one command, or a piece of one."""
        try:
            match message:
                case BodyPart():
                    whole = self._bodies.add(message)
                    return _NOTHING if whole is None else self._take(whole)
                case RunJob(request=None) if not self._memory.knows(message.command):
                    self._bodies.begin(message)
                    return _NOTHING
                case Cancel() | Preempt():
                    return self._stop(message)
                case _:
                    return self._take(message)
        except BrokenBody as error:
            return self._give_back(error.run, str(error))

    def answered_by(self, events: Sequence[Event]) -> tuple[CommandId, ...]:
        """The commands that these events, about to leave in a frame, answer."""
        return self._memory.answered_by(events)

    def acknowledged(self, commands: Sequence[CommandId]) -> None:
        """The parent knows the answers to these."""
        self._memory.forget(commands)

    def welcomed(self) -> None:
        """Everything unanswered is sent again, bodies from their beginning."""
        self._bodies.clear()

    def _take(self, command: RunJob | Cancel | Preempt | Seal) -> Taken:
        if self._memory.take(command):
            return (command,), ()
        self.repeated += 1
        return _NOTHING

    def _stop(self, message: Cancel | Preempt) -> Taken:
        run = self._bodies.drop(message.job, message.attempt)
        if run is None:
            return self._take(message)
        # The attempt was still waiting for its body: the engine never hears of it.
        self._take(run)
        self._take(message)
        reason = "cancelled" if isinstance(message, Cancel) else "preempted"
        return (), (Stopped(run.job, run.attempt, reason, 0, 0),)

    def _give_back(self, run: RunJob, problem: str) -> Taken:
        self._take(run)
        failure = Failure("internal_error", problem, retryable=True)
        return (), (Refused(run.command, run.job, run.attempt, "later", failure),)
