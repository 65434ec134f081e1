"""A worker's frame as one operation.

A frame is all of one engine step, for all its jobs, and counts once: the last statement moves the
generation's cursor from the frame before to this one, and is void for a repeated frame, for one out
of order and for a generation that was declared lost. Then nothing of the frame has happened. Frames
that come while an earlier one still waits for the store join it, and count with it or not at all.
"""

from datetime import datetime
from typing import Final

import msgspec

from app.domain.job import Ending, NewJob, StopReason
from app.storage.attempt_changes import AttemptChange
from app.storage.dependencies import predecessor_end_steps
from app.storage.encoding import checksum, micros
from app.storage.endings import (
    AttemptOutcome,
    GiveBack,
    give_back_params,
    outcome_of,
    running_end_params,
)
from app.storage.operations import (
    NewReceipt,
    NewReport,
    Operation,
    Params,
    Rank,
    Statement,
    Step,
    Values,
    in_commit_order,
)
from app.storage.padding import CHUNK_PAD_BYTES
from app.storage.reports import job_report
from app.storage.sql import insert
from shared.ids import CommandId, GenerationId, JobId

_CHUNK_COLUMNS: Final[tuple[str, ...]] = (
    "job",
    "number",
    "first_event",
    "last_event",
    "attempt",
    "choice",
    "first_token",
    "token_count",
    "checksum",
    "tokens",
    "logprobs",
    "parts",
)
_CHUNK: Final = Statement(
    "chunk.insert",
    Rank.CHUNK_INSERT,
    insert(
        "chunk",
        _CHUNK_COLUMNS,
        pad=f"(SELECT zeroblob({CHUNK_PAD_BYTES}) FROM job"  # noqa: S608 - our own constant
        " WHERE id = :job AND keep_ms IS NOT NULL)",
    ),
    together=True,
    placed=True,
)

_ANSWERED: Final = Statement(
    "command.answer", Rank.COMMAND_ANSWER, "DELETE FROM command WHERE id = :id", exact=False
)

_CURSOR: Final = Statement(
    "generation.frame",
    Rank.GENERATION_FRAME,
    "UPDATE generation SET last_seq = :seq, jobs = jobs + :jobs,"
    " prompt_tokens = prompt_tokens + :prompt, cached_tokens = cached_tokens + :cached,"
    " completion_tokens = completion_tokens + :completion,"
    " reasoning_tokens = reasoning_tokens + :reasoning"
    " WHERE id = :generation AND last_seq = :before AND state NOT IN ('lost', 'gone')",
)


class NewChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a job's journal: written once.

    ``number`` counts the job's rows from 0. Events ``first_event`` to ``last_event`` are what its
    parts show; a row whose text is held back has none, and ``last_event`` is ``first_event`` - 1.
    The payloads are opaque here and covered by one checksum.
    """

    job: JobId
    number: int
    first_event: int
    last_event: int
    attempt: int
    choice: int
    first_token: int
    token_count: int
    tokens: bytes
    logprobs: bytes = b""
    parts: bytes = b""


class FrameOperation:
    """Builds the operation of frame ``seq`` (from 1) of a generation, and of those that join it
    before it is built: all of them count, or none does.

    Attributes:
        lazy: it holds nothing but tokens of attached jobs, and may ride along with others.
    """

    __slots__ = (
        "_answers",
        "_before",
        "_changes",
        "_chunks",
        "_generation",
        "_last",
        "_receipts",
        "_reports",
        "_totals",
        "lazy",
    )

    def __init__(self, generation: GenerationId, seq: int, *, lazy: bool = False) -> None:
        self.lazy = lazy
        self._generation = generation
        self._before, self._last = seq - 1, seq
        self._changes: dict[tuple[JobId, int], AttemptChange] = {}
        self._chunks: list[Step] = []
        self._answers: dict[CommandId, None] = {}
        self._reports: list[NewReport] = []
        self._receipts: list[NewReceipt] = []
        self._totals = {"jobs": 0, "prompt": 0, "cached": 0, "completion": 0, "reasoning": 0}

    @property
    def patient(self) -> bool:
        """It waits out a full disk: what it tells has happened."""
        return True

    @property
    def last(self) -> int:
        """The last of its frames."""
        return self._last

    @property
    def frames(self) -> int:
        """How many frames it is of."""
        return self._last - self._before

    def join(self, seq: int) -> None:
        """The next frame belongs to it, too."""
        self._last = seq

    def accepted(
        self,
        job: JobId,
        attempt: int,
        *,
        now: datetime,
        prompt_tokens: int,
        cached_tokens: int,
        digest: str,
        fingerprint: str,
        replayed_tokens: int = 0,
    ) -> None:
        """The worker has a row for the attempt and counted its prompt; with that it has answered
        its ``RunJob``."""
        change = self._change(job, attempt)
        change.accepted = True
        change.values |= {
            "accepted_at": micros(now),
            "attempt_prompt": prompt_tokens,
            "attempt_cached": cached_tokens,
            "digest": digest,
            "fingerprint": fingerprint,
            "replayed": replayed_tokens,
        }
        self._totals["jobs"] += 1
        self._totals["prompt"] += prompt_tokens
        self._totals["cached"] += cached_tokens

    def progressed(self, job: JobId, attempt: int, prefill_tokens: int) -> None:
        """So many prompt tokens are computed: what the poison rule compares between attempts."""
        change = self._change(job, attempt)
        change.done = max(change.done, prefill_tokens)

    def tokens(self, job: JobId, attempt: int, choice: int, count: int) -> None:
        """``count`` completion tokens of one choice, delivered for the first time."""
        if not count:
            return
        counts = self._change(job, attempt).counts
        counts[choice] = counts.get(choice, 0) + count
        self._totals["completion"] += count

    def journal(self, chunk: NewChunk) -> None:
        """A journal row; its event numbers must follow the job's last one exactly."""
        self._chunks.append(journal_step(chunk))
        change = self._change(chunk.job, chunk.attempt)
        if chunk.last_event >= chunk.first_event:
            change.events(chunk.first_event, chunk.last_event + 1)

    def ended(
        self,
        new: NewJob,
        ending: Ending,
        *,
        stop_reason: StopReason | None,
        outcome: AttemptOutcome | None = None,
        attempt_reasoning: int = 0,
        followed: bool = True,
        commanded: bool = True,
    ) -> None:
        """The job ends with this frame. ``stop_reason`` is what the decision was based on: if the
        row has another by now, the frame is void at ``job.end`` and must be decided again.
        ``followed`` unless it is known that no job waits for this one, ``commanded`` unless it is
        that nothing more was asked of its worker about it."""
        change = self._change(ending.job, ending.attempt)
        change.over, change.commanded = "end", commanded
        change.values |= running_end_params(
            ending, stop_reason, outcome or outcome_of(ending), attempt_reasoning
        )
        if followed:
            change.followed = predecessor_end_steps(change.values, ending.job)
        self._reports.append(job_report(new, ending))
        self._totals["reasoning"] += attempt_reasoning

    def gave_back(self, back: GiveBack) -> None:
        """The worker has let go of the job, which goes on later. Void with a stop pending."""
        change = self._change(back.job, back.attempt)
        change.over = "give_back"
        change.values |= give_back_params(back)

    def answered(self, command: CommandId) -> None:
        """The command's answer is in this frame: it need not be sent again."""
        self._answers[command] = None

    def receipt(self, receipt: NewReceipt) -> None:
        """The worker's own count is in this frame: its receipt is written with it."""
        self._receipts.append(receipt)

    def build(self) -> Operation:
        """The operation. Call it last."""
        steps = [step for change in self._changes.values() for step in change.steps()]
        steps += self._chunks
        steps += [self._step(_ANSWERED, {"id": command}) for command in self._answers]
        cursor = {"generation": self._generation, "before": self._before, "seq": self._last}
        steps.append(self._step(_CURSOR, {**cursor, **self._totals}))
        jobs = dict.fromkeys(job for job, _ in self._changes)
        return Operation(
            name="frame",
            subjects=(frame_cursor(self._generation), *jobs),
            reads=(self._generation,),
            steps=in_commit_order(steps),
            reports=tuple(self._reports),
            receipts=tuple(self._receipts),
            lazy=self.lazy,
        )

    def _step(self, statement: Statement, params: Params) -> Step:
        return Step(statement, params, self._generation)

    def _change(self, job: JobId, attempt: int) -> AttemptChange:
        key = (job, attempt)
        change = self._changes.get(key)
        if change is None:
            change = self._changes[key] = AttemptChange(job, {"job": job, "attempt": attempt})
        return change


def journal_step(chunk: NewChunk) -> Step:
    """The insert of a journal row."""
    return Step(_CHUNK, _chunk_values(chunk), chunk.job)


def frame_cursor(generation: GenerationId) -> str:
    """The subject that orders a generation's frames. It is not the generation's own id, so that
    claims, which only read that row, share a commit with frames."""
    return f"{generation}/frames"


def _chunk_values(chunk: NewChunk) -> Values:
    return (
        chunk.job,
        chunk.number,
        chunk.first_event,
        chunk.last_event,
        chunk.attempt,
        chunk.choice,
        chunk.first_token,
        chunk.token_count,
        checksum(chunk.tokens, chunk.logprobs, chunk.parts),
        chunk.tokens,
        chunk.logprobs,
        chunk.parts,
    )
