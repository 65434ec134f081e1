"""What happens to one attempt, from its command to its terminal event.

Every method ends in events, which gather until the loop takes them for the next frame. An attempt
has exactly one terminal event, after which it is no longer held.
"""

from dataclasses import dataclass
from typing import Final, Literal

import structlog

from shared.failures import Failure
from shared.ids import CommandId
from shared.messages import (
    Accepted,
    Answer,
    Cancel,
    Delta,
    Event,
    Failed,
    Finished,
    Part,
    Preempt,
    Progress,
    Refused,
    RunJob,
    Stopped,
)
from shared.requests import JobRequest
from shared.totals import GenerationTotals
from worker.engine.engine import (
    Engine,
    EngineInfo,
    RowFailed,
    RowProgress,
    RowSpec,
    RowToken,
)
from worker.engine.sequence import ResumeDiverged
from worker.engine.stops import StopStrings
from worker.inbox import NotPrepared, Prepared
from worker.rows import HeldJob, Rows, Stage, Verdict
from worker.starting import Opening, clamped, opening, refusal

FAILURE_CHARS_MAX: Final = 2_000
"""Longest message of a failure: terminal events must fit the room reserved for them."""

PREPARE_TIMEOUT: Final = Failure("prepare_timeout", "Preparing the prompt took too long.")

_STALE: Final = Failure("stale", "This attempt has ended here, or a higher one was seen.")
_NO_ROOM: Final = Failure("no_room", "The worker holds as many jobs as it can.", retryable=True)

StopReason = Literal["cancelled", "preempted", "exit"]

log = structlog.get_logger()


@dataclass(slots=True)
class Totals:
    """Counts since the start of the process."""

    attempts: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def sealed(self) -> GenerationTotals:
        """For the parent."""
        return GenerationTotals(self.attempts, self.prompt_tokens, 0, self.completion_tokens)


class Attempts:
    """The attempts held, and the events about them that no frame holds yet."""

    def __init__(self, engine: Engine, info: EngineInfo, rows: Rows) -> None:
        self.totals = Totals()
        self._engine = engine
        self._info = info
        self._codec = engine.text()
        self._turn_stops = StopStrings(silent=info.turn_stops)
        self._rows = rows
        self._events: list[Event] = []

    def take_events(self) -> list[Event]:
        """What has happened since the last call."""
        events, self._events = self._events, []
        return events

    # --- commands ------------------------------------------------------------------------------

    def run(self, run: RunJob) -> HeldJob | None:
        """Take the job; returns it if its prompt is to be prepared now."""
        self._rows.saw(run.command)
        match self._rows.judge(run):
            case Verdict.TAKEN:
                older = self._rows.older(run)
                if older is not None:
                    self.stop(older, "exit")
                return self._rows.take(run)
            case Verdict.HELD_ALREADY:
                self._repeat(run)
            case Verdict.STALE:
                self._refuse(run, "stale", _STALE)
            case Verdict.NO_ROOM:
                self._refuse(run, "later", _NO_ROOM)
        return None

    def asked_to_stop(self, command: Cancel | Preempt) -> None:
        """Stop the attempt at whichever stage; answers also when it is not here."""
        self._rows.saw(command.command)
        held = self._rows.find(command.job, command.attempt)
        if held is not None:
            self.stop(held, "cancelled" if isinstance(command, Cancel) else "preempted")
        elif command.command:
            self.answer(command.command, "not_held")

    def answer(self, command: CommandId, code: str, body: bytes = b"") -> None:
        """Answer a command that is about no attempt."""
        self._events.append(Answer(command, code, body))

    def broken(self, run: RunJob, failure: Failure) -> None:
        """The command could not even be taken."""
        self._refuse(run, "never", failure)

    def _repeat(self, run: RunJob) -> None:
        """The same attempt came under another command: it has one more answer to give."""
        held = self._rows.find(run.job, run.attempt)
        if held is None:
            return
        held.run = run
        if held.stage is Stage.RUNNING:
            self._accept(held)

    def _refuse(
        self, run: RunJob, kind: Literal["never", "later", "stale"], failure: Failure
    ) -> None:
        self._events.append(Refused(run.command, run.job, run.attempt, kind, failure))

    # --- before the first token ----------------------------------------------------------------

    def prepared(self, message: Prepared) -> None:
        """The prompt is there: the job waits for a row, unless this model cannot take it."""
        held = self._rows.find(message.job, message.attempt)
        if held is None or held.stage is not Stage.PREPARING:
            return
        failure = refusal(held.run, len(message.tokens), message.digest, self._info)
        if failure is not None:
            self.fail(held, failure)
            return
        self._rows.prepared(held, message.tokens, message.digest)

    def not_prepared(self, message: NotPrepared) -> None:
        """The prompt cannot be made."""
        held = self._rows.find(message.job, message.attempt)
        if held is not None:
            self.fail(held, message.failure)

    def start(self, held: HeldJob) -> None:
        """Give the waiting job a row. It is accepted even if it then has nothing left to do."""
        request = held.run.request
        if request is None:
            raise ValueError("a command without its body was prepared")
        held.max_tokens = clamped(request.max_tokens, len(held.prompt), self._info.context_tokens)
        try:
            beginning = opening(held.run, self._stops(request), self._codec, self._info)
        except ResumeDiverged as error:
            self.fail(held, Failure("resume_diverged", str(error)))
            return
        held.text, held.index = beginning.text, len(beginning.replayed)
        if held.text.finished or held.index >= held.max_tokens:
            self._start_at_the_end(held, beginning)
        else:
            self._insert(held, request, beginning)

    def _stops(self, request: JobRequest) -> StopStrings:
        if not request.stop:
            return self._turn_stops
        return StopStrings(request.stop, self._info.turn_stops)

    def _start_at_the_end(self, held: HeldJob, beginning: Opening) -> None:
        self._rows.start(held)
        self._accept(held)
        self._show(held, beginning.unshown + beginning.text.close("length"))
        self._finish(held)

    def _insert(self, held: HeldJob, request: JobRequest, beginning: Opening) -> None:
        spec = RowSpec(
            row=self._rows.start(held),
            prompt=held.prompt,
            sampling=request.sampling,
            max_tokens=held.max_tokens - held.index,
            replayed=beginning.replayed,
        )
        try:
            self._engine.insert(spec)
        except ValueError as error:
            self.fail(held, Failure("invalid_value", str(error)))
            return
        self._accept(held)
        self._show(held, beginning.unshown)

    def _accept(self, held: HeldJob) -> None:
        run, tokens = held.run, len(held.prompt)
        if not held.accepted:
            held.accepted = True
            self.totals.attempts += 1
            self.totals.prompt_tokens += tokens
        self._events.append(
            Accepted(run.command, run.job, run.attempt, tokens, 0, held.digest, held.max_tokens)
        )

    def _show(self, held: HeldJob, parts: tuple[Part, ...]) -> None:
        """Parts that come without a token of this attempt."""
        if parts:
            self._events.append(Delta(held.run.job, held.run.attempt, 0, held.index, (), parts))

    # --- while it runs -------------------------------------------------------------------------

    def progress(self, progress: RowProgress) -> None:
        """A piece of the prompt was computed."""
        held = self._rows.at(progress.row)
        if held is not None:
            run = held.run
            self._events.append(Progress(run.job, run.attempt, progress.done, progress.total))

    def token(self, token: RowToken) -> None:
        """The engine has drawn a token."""
        held = self._rows.at(token.row)
        if held is None or held.text is None:
            return
        text, run = held.text, held.run
        parts = text.push(token.token, token.finish)
        self._events.append(Delta(run.job, run.attempt, 0, held.index, (token.token,), parts))
        held.index += 1
        held.completion_tokens += 1
        if text.finished:
            if token.finish is None:
                self._engine.remove(token.row)
            self._finish(held)

    def row_failed(self, failed: RowFailed) -> None:
        """The engine has dropped the row."""
        held = self._rows.at(failed.row)
        if held is not None:
            self.fail(held, failed.failure)

    # --- endings -------------------------------------------------------------------------------

    def _finish(self, held: HeldJob) -> None:
        self._leave(held)
        self._events.append(Finished(held.run.job, held.run.attempt, held.completion_tokens, 0))

    def stop(self, held: HeldJob, reason: StopReason) -> None:
        """Give the attempt up because somebody asked."""
        self._remove(held)
        self._tell_stopped(held, reason)

    def stop_all(self, reason: StopReason) -> None:
        """Give up all that is held."""
        for held in self._rows.all():
            self.stop(held, reason)

    def _tell_stopped(self, held: HeldJob, reason: StopReason) -> None:
        run = held.run
        self._events.append(Stopped(run.job, run.attempt, reason, held.completion_tokens, 0))

    def fail(self, held: HeldJob, failure: Failure) -> None:
        """End the attempt by its own fault, or the engine's."""
        self._remove(held)
        self._tell_failure(held, failure)

    def lose(self, failure: Failure) -> None:
        """The engine is lost: what it had computed on fails, the rest is given back."""
        for held in self._rows.all():
            self._leave(held)
            if held.accepted:
                self._tell_failure(held, failure)
            else:
                self._tell_stopped(held, "exit")

    def _tell_failure(self, held: HeldJob, failure: Failure) -> None:
        run = held.run
        log.info("job failed", job=run.job, attempt=run.attempt, code=failure.code)
        short = Failure(
            failure.code, failure.message[:FAILURE_CHARS_MAX], failure.retryable, failure.param
        )
        if held.accepted:
            self._events.append(Failed(run.job, run.attempt, short, held.completion_tokens, 0))
        else:
            self._refuse(run, "never", short)

    def _remove(self, held: HeldJob) -> None:
        if held.row is not None:
            self._engine.remove(held.row)
        self._leave(held)

    def _leave(self, held: HeldJob) -> None:
        self._rows.leave(held)
        self.totals.completion_tokens += held.completion_tokens
