"""A worker's frame as one operation.

A frame is all of one engine step, for all its jobs, and counts once: the last statement moves the
generation's cursor from the frame before to this one, and is void for a repeated frame, for one out
of order and for a generation that was declared lost. Then nothing of the frame has happened.
"""

from datetime import datetime
from typing import Final

import msgspec

from app.domain.job import Ending, NewJob, StopReason
from app.storage.encoding import checksum, micros
from app.storage.endings import (
    AttemptOutcome,
    GiveBack,
    give_back_steps,
    outcome_of,
    running_end_steps,
)
from app.storage.operations import (
    NewReceipt,
    NewReport,
    Operation,
    Params,
    Rank,
    Statement,
    Step,
    Value,
    in_commit_order,
)
from app.storage.padding import CHUNK_PAD_BYTES
from app.storage.reports import job_report
from app.storage.sql import insert
from shared.ids import CommandId, GenerationId, JobId

_ACCEPT_ATTEMPT: Final = Statement(
    "attempt.accept",
    Rank.ATTEMPT_ACCEPT,
    "UPDATE attempt SET accepted_at = :now, prompt_tokens = :prompt, cached_tokens = :cached,"
    " replayed_tokens = :replayed"
    " WHERE job = :job AND number = :attempt AND outcome IS NULL AND accepted_at IS NULL",
)

_ACCEPT_JOB: Final = Statement(
    "job.accept",
    Rank.JOB_ACCEPT,
    "UPDATE job SET events = events + (started_at IS NULL),"
    " prompt_tokens = iif(started_at IS NULL, :prompt, prompt_tokens),"
    " cached_tokens = iif(started_at IS NULL, :cached, cached_tokens),"
    " prompt_digest = coalesce(prompt_digest, :digest),"
    " fingerprint = coalesce(fingerprint, :fingerprint),"
    " started_at = coalesce(started_at, :now)"
    " WHERE id = :job AND state = 'running' AND attempt = :attempt",
)
"""Only the first attempt that is accepted sets the prompt's counts and takes an event number."""

_PROGRESS: Final = Statement(
    "attempt.progress",
    Rank.ATTEMPT_PROGRESS,
    "UPDATE attempt SET prefill_tokens = max(prefill_tokens, :done)"
    " WHERE job = :job AND number = :attempt AND outcome IS NULL",
)

_TOKENS: Final = Statement(
    "attempt.tokens",
    Rank.ATTEMPT_TOKENS,
    "UPDATE attempt SET delivered_tokens = delivered_tokens + :count,"
    " choice_counts = json_set(choice_counts, :path,"
    " coalesce(json_extract(choice_counts, :path), 0) + :count)"
    " WHERE job = :job AND number = :attempt AND outcome IS NULL",
)

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
)

_EVENTS: Final = Statement(
    "job.events",
    Rank.JOB_EVENTS,
    "UPDATE job SET events = :next"
    " WHERE id = :job AND state = 'running' AND attempt = :attempt AND events = :first",
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
    " WHERE id = :generation AND last_seq = :seq - 1 AND state NOT IN ('lost', 'gone')",
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
    """Builds the operation of frame ``seq`` (from 1) of a generation. Call ``build`` last."""

    __slots__ = ("_generation", "_receipts", "_reports", "_seq", "_steps", "_subjects", "_totals")

    def __init__(self, generation: GenerationId, seq: int) -> None:
        self._generation = generation
        self._seq = seq
        self._steps: list[Step] = []
        self._reports: list[NewReport] = []
        self._receipts: list[NewReceipt] = []
        self._subjects: dict[str, None] = {}
        self._totals = {"jobs": 0, "prompt": 0, "cached": 0, "completion": 0, "reasoning": 0}

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
        """The worker has a row for the attempt and counted its prompt."""
        params: Params = {
            "job": job,
            "attempt": attempt,
            "now": micros(now),
            "prompt": prompt_tokens,
            "cached": cached_tokens,
            "digest": digest,
            "fingerprint": fingerprint,
            "replayed": replayed_tokens,
        }
        self._add(_ACCEPT_ATTEMPT, params, job)
        self._add(_ACCEPT_JOB, params, job)
        self._totals["jobs"] += 1
        self._totals["prompt"] += prompt_tokens
        self._totals["cached"] += cached_tokens

    def progressed(self, job: JobId, attempt: int, prefill_tokens: int) -> None:
        """So many prompt tokens are computed: what the poison rule compares between attempts."""
        self._add(_PROGRESS, {"job": job, "attempt": attempt, "done": prefill_tokens}, job)

    def tokens(self, job: JobId, attempt: int, choice: int, count: int) -> None:
        """``count`` completion tokens of one choice, delivered for the first time."""
        if not count:
            return
        path = f'$."{choice}"'
        params: Params = {"job": job, "attempt": attempt, "path": path, "count": count}
        self._add(_TOKENS, params, job)
        self._totals["completion"] += count

    def journal(self, chunk: NewChunk) -> None:
        """A journal row; its event numbers must follow the job's last one exactly."""
        self._subjects[chunk.job] = None
        self._steps.append(journal_step(chunk))
        if chunk.last_event >= chunk.first_event:
            params: Params = {
                "job": chunk.job,
                "attempt": chunk.attempt,
                "first": chunk.first_event,
                "next": chunk.last_event + 1,
            }
            self._add(_EVENTS, params, chunk.job)

    def ended(
        self,
        new: NewJob,
        ending: Ending,
        *,
        stop_reason: StopReason | None,
        outcome: AttemptOutcome | None = None,
        attempt_reasoning: int = 0,
    ) -> None:
        """The job ends with this frame. ``stop_reason`` is what the decision was based on: if the
        row has another by now, the frame is void at ``job.end`` and must be decided again."""
        steps = running_end_steps(
            ending, stop_reason, outcome or outcome_of(ending), attempt_reasoning
        )
        self._extend(steps, ending.job)
        self._reports.append(job_report(new, ending))
        self._totals["reasoning"] += attempt_reasoning

    def gave_back(self, back: GiveBack) -> None:
        """The worker has let go of the job, which goes on later. Void with a stop pending."""
        self._extend(give_back_steps(back), back.job)

    def answered(self, command: CommandId) -> None:
        """The command's answer is in this frame: it need not be sent again."""
        self._steps.append(Step(_ANSWERED, {"id": command}, self._generation))

    def receipt(self, receipt: NewReceipt) -> None:
        """The worker's own count is in this frame: its receipt is written with it."""
        self._receipts.append(receipt)

    def build(self, *, lazy: bool = False) -> Operation:
        """The operation. ``lazy`` when it holds nothing but tokens of attached jobs."""
        cursor: Params = {"generation": self._generation, "seq": self._seq, **self._totals}
        self._steps.append(Step(_CURSOR, cursor, self._generation))
        return Operation(
            name="frame",
            subjects=(frame_cursor(self._generation), *self._subjects),
            reads=(self._generation,),
            steps=in_commit_order(self._steps),
            reports=tuple(self._reports),
            receipts=tuple(self._receipts),
            lazy=lazy,
        )

    def _add(self, statement: Statement, params: Params, job: JobId) -> None:
        self._subjects[job] = None
        self._steps.append(Step(statement, params, job))

    def _extend(self, steps: list[Step], job: JobId) -> None:
        self._subjects[job] = None
        self._steps += steps


def journal_step(chunk: NewChunk) -> Step:
    """The insert of a journal row."""
    return Step(_CHUNK, dict(zip(_CHUNK_COLUMNS, _chunk_values(chunk), strict=True)), chunk.job)


def frame_cursor(generation: GenerationId) -> str:
    """The subject that orders a generation's frames. It is not the generation's own id, so that
    claims, which only read that row, share a commit with frames."""
    return f"{generation}/frames"


def _chunk_values(chunk: NewChunk) -> tuple[Value, ...]:
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
