"""Which jobs this worker holds, and which of them gets a row next. No I/O, no clock, no model.

A job is held from its ``RunJob`` to its terminal event, in three stages: its prompt is prepared, it
waits for a row, it runs. At most ``rows + prefetch`` are held. Waiting jobs get their row by class,
then in the order of the parent's commands, whichever was prepared first; while one of a higher
class is being prepared, a row is kept for it.
"""

from bisect import insort
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from shared.ids import CommandId, JobId
from shared.messages import Credit, RunJob
from worker.engine.engine import RowId
from worker.engine.sequence import Sequence as ChoiceText

ATTEMPTS_REMEMBERED_MAX: Final = 4_096
"""Jobs whose highest attempt is remembered after they have left, to tell a stale command."""

KV_BYTES_NOT_COUNTED: Final = 2**62
"""What ``Credit`` says while rows alone limit admission."""


class Stage(Enum):
    """How far a held job has come."""

    PREPARING = auto()
    WAITING = auto()
    RUNNING = auto()
    GONE = auto()


class Verdict(Enum):
    """What becomes of a ``RunJob``."""

    TAKEN = auto()
    HELD_ALREADY = auto()
    STALE = auto()
    NO_ROOM = auto()


@dataclass(slots=True, eq=False)
class HeldJob:
    """One attempt here. ``index`` is that of the next token in its completion, and
    ``completion_tokens`` counts those that this attempt has made."""

    run: RunJob
    stage: Stage = Stage.PREPARING
    prompt: Sequence[int] = ()
    digest: str = ""
    max_tokens: int = 0
    row: RowId | None = None
    text: ChoiceText | None = None
    accepted: bool = False
    index: int = 0
    completion_tokens: int = 0


def _turn(held: HeldJob) -> tuple[int, CommandId]:
    return held.run.class_rank, held.run.command


@dataclass(slots=True)
class Rows:
    """The jobs held, under their bounds."""

    rows: int
    prefetch: int
    last_command: int = 0
    running: int = 0
    _held: dict[JobId, HeldJob] = field(default_factory=dict[JobId, HeldJob])
    _waiting: list[HeldJob] = field(default_factory=list[HeldJob])
    _by_row: dict[RowId, HeldJob] = field(default_factory=dict[RowId, HeldJob])
    _rows_given: int = 0
    _attempts: OrderedDict[JobId, int] = field(default_factory=OrderedDict[JobId, int])

    @property
    def pending(self) -> int:
        """Jobs held that have no row yet."""
        return len(self._held) - self.running

    @property
    def worth_holding(self) -> bool:
        """Whether the next step is better held for prompts that are still being made: a row is left
        for one, and no row has drawn a token, so that nobody watches a stream stand still."""
        begun = self.running + len(self._waiting)
        return 0 < begun < min(self.rows, len(self._held)) and self._untouched

    @property
    def _untouched(self) -> bool:
        return all(held.completion_tokens == 0 for held in self._by_row.values())

    @property
    def credit(self) -> Credit:
        """Room for new jobs, as of the last command seen."""
        free = self.rows + self.prefetch - len(self._held)
        return Credit(free, KV_BYTES_NOT_COUNTED, self.last_command)

    def saw(self, command: CommandId) -> None:
        """A command came, of any kind."""
        self.last_command = max(self.last_command, command)

    def judge(self, run: RunJob) -> Verdict:
        """Whether this attempt is to be taken. Changes nothing."""
        held = self._held.get(run.job)
        if held is not None and held.run.attempt == run.attempt:
            return Verdict.HELD_ALREADY
        seen = held.run.attempt if held is not None else self._attempts.get(run.job, 0)
        if run.attempt <= seen:
            return Verdict.STALE
        replaces_one = held is not None
        if len(self._held) - replaces_one >= self.rows + self.prefetch:
            return Verdict.NO_ROOM
        return Verdict.TAKEN

    def take(self, run: RunJob) -> HeldJob:
        """Hold an attempt that was judged ``TAKEN`` (an older one of its job has left before)."""
        held = HeldJob(run)
        self._held[run.job] = held
        self._attempts[run.job] = run.attempt
        self._attempts.move_to_end(run.job)
        if len(self._attempts) > ATTEMPTS_REMEMBERED_MAX:
            self._attempts.popitem(last=False)
        return held

    def find(self, job: JobId, attempt: int) -> HeldJob | None:
        """The attempt, if it is held."""
        held = self._held.get(job)
        return held if held is not None and held.run.attempt == attempt else None

    def older(self, run: RunJob) -> HeldJob | None:
        """A lower attempt of the same job that is still held."""
        held = self._held.get(run.job)
        return held if held is not None and held.run.attempt < run.attempt else None

    def at(self, row: RowId) -> HeldJob | None:
        """Whose row this is; None for one that was removed."""
        return self._by_row.get(row)

    def all(self) -> list[HeldJob]:
        """Every job held."""
        return list(self._held.values())

    def running_jobs(self) -> list[HeldJob]:
        """Every job that has a row."""
        return list(self._by_row.values())

    def prepared(self, held: HeldJob, prompt: Sequence[int], digest: str) -> None:
        """The job waits for a row from now on."""
        held.stage, held.prompt, held.digest = Stage.WAITING, prompt, digest
        insort(self._waiting, held, key=_turn)

    def next_to_start(self) -> HeldJob | None:
        """The waiting job that gets a free row; None while there is no such job or row."""
        free = self.rows - self.running
        if not self._waiting or free <= 0:
            return None
        first = self._waiting[0]
        return first if free > self._coming_before(first) else None

    def _coming_before(self, first: HeldJob) -> int:
        """Jobs of a higher class that will be prepared soon: they are not made to wait for a row
        that was given to this one a moment before."""
        if not first.run.class_rank:
            return 0
        return sum(
            held.stage is Stage.PREPARING and held.run.class_rank < first.run.class_rank
            for held in self._held.values()
        )

    def start(self, held: HeldJob) -> RowId:
        """Give the job a row, under a number never used before."""
        self._waiting.remove(held)
        self._rows_given += 1
        held.stage, held.row = Stage.RUNNING, RowId(self._rows_given)
        self._by_row[held.row] = held
        self.running += 1
        return held.row

    def leave(self, held: HeldJob) -> None:
        """The attempt has ended here, at whichever stage."""
        if held.stage is Stage.WAITING:
            self._waiting.remove(held)
        if held.row is not None:
            del self._by_row[held.row]
            self.running -= 1
        held.stage = Stage.GONE
        del self._held[held.run.job]
