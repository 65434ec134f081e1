"""Frames in: each becomes one operation of the writer, and what is shown follows its commit.

(a) Output of attached jobs is shown at once, since nothing about it is promised to outlive this
    process; nothing else is.
(b) The whole frame, all its jobs, is one operation: journal rows, token counts, endings with their
    reports, answered commands, and the generation's cursor, which makes a frame count once.
(c) After the commit: starts, journaled output, endings, jobs that went back, and the ``Ack`` that
    lets the worker forget the frame.

An event that belongs to no current attempt changes nothing and is answered with a cancel, so that a
worker never computes for nobody. An event that is wrong ends its own job only.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import structlog

from app.domain.events import Output, Started
from app.domain.job import JobState
from app.domain.numbering import numbers
from app.domain.output import OutOfOrder
from app.domain.worker_state import WorkerState
from app.services.attempts import Attempts
from app.services.clock import Clock
from app.services.endings import Endings
from app.services.fleet import Fleet, Worker
from app.services.fold import Fold
from app.services.ledger import LiveJob
from app.services.recall import encode_logprobs, encode_parts, encode_tokens
from app.services.relay import Relay
from app.services.returns import Returns
from app.storage.errors import OperationFailed
from app.storage.frames import FrameOperation, NewChunk
from app.storage.operations import NewReceipt, Void
from app.storage.writer import OutcomeFuture, Writer
from shared.ids import CommandId, GenerationId, JobId
from shared.messages import (
    Accepted,
    Answer,
    Cancel,
    Delta,
    Event,
    Failed,
    Finished,
    Frame,
    Progress,
    Refused,
    Stopped,
)

JobEvent: TypeAlias = Accepted | Refused | Progress | Delta | Finished | Stopped | Failed

PREMATURE: Final = (Delta, Progress, Finished)
"""What must not be said before ``Accepted``. An attempt may stop and fail without it."""

TOLD: Final = (Delta, Accepted, Progress, Finished)
"""What can be untrue."""

FRAMES_JOINED_MAX: Final = 64
"""Frames that are written as one: what a failed write costs is bounded, and so is its time."""

_log = structlog.get_logger("ingestion")


class Ingestion:
    """Takes frames in, in order, each once: the session in front sees to both.

    ``on_broken`` is called with a worker whose frame cannot be stored, why, and the job at fault
    if one is known; ``on_accepted`` with a job that has got its row, ``on_folded`` with a worker
    after each frame of it; ``sealing`` with a worker's own count, for the receipt to be written
    with it, and ``on_sealed`` once it is.
    """

    def __init__(
        self,
        fleet: Fleet,
        relay: Relay,
        endings: Endings,
        returns: Returns,
        attempts: Attempts,
        writer: Writer,
        clock: Clock,
        epoch: int,
    ) -> None:
        self._fleet = fleet
        self._relay = relay
        self._endings = endings
        self._returns = returns
        self._attempts = attempts
        self._writer = writer
        self._clock = clock
        self._epoch = epoch
        self.on_broken: Callable[[Worker, str, JobId | None], None] = _nothing
        self.on_accepted: Callable[[LiveJob], None] = _nothing
        self.on_folded: Callable[[Worker], None] = _nothing
        self.sealing: Callable[[Worker, Answer], NewReceipt | None] = _nothing
        self.on_sealed: Callable[[Worker], None] = _nothing
        self._pending: defaultdict[GenerationId, deque[Fold]] = defaultdict(deque)
        self.stale_events = 0
        self.tokens = 0

    def frame(self, worker: Worker, frame: Frame) -> None:
        """Fold the next frame of this worker."""
        if (untrue := _untrue(worker, frame)) is not None:
            self._broken(worker, untrue, None)
            return
        fold, now = self._joined(worker, frame.seq), self._clock.now()
        joins = fold is not None
        if fold is None:
            fold = Fold(worker, FrameOperation(worker.generation, frame.seq, lazy=True), now)
            self._pending[worker.generation].append(fold)
        fold.now = now
        for event in frame.events:
            self._event(fold, event)
        worker.credited(frame.credit)
        if joins:
            self._writer.grown()
        else:
            future = self._writer.submit(fold.operation)
            future.add_done_callback(partial(self._folded, fold))
        self._relay.pump(worker.model)
        self.on_folded(worker)

    def _joined(self, worker: Worker, seq: int) -> Fold | None:
        """What the frame before waits in, if this one can be written with it: while the store is
        at work its frames gather, and a job that begins and ends meanwhile is written once."""
        pending = self._pending.get(worker.generation)
        if not pending or not self._writer.may_grow(pending[-1].operation):
            return None
        fold = pending[-1]
        if fold.operation.frames >= FRAMES_JOINED_MAX:
            return None
        fold.operation.join(seq)
        return fold

    def _folded(self, fold: Fold, future: OutcomeFuture) -> None:
        seq = fold.operation.last
        error = None if future.cancelled() else future.exception()
        if error is not None and fold in self._pending[fold.worker.generation]:
            culprit = error.subject if isinstance(error, OperationFailed) else None
            reason = f"frame {seq} could not be stored: {error}"
            self._broken(fold.worker, reason, JobId(culprit) if culprit else None)
            return
        self._done(fold)
        if future.cancelled():
            return
        outcome = future.result()
        if isinstance(outcome, Void):
            self._void(fold, seq, outcome)
            return
        ack = fold.worker.session.frame_committed(seq)
        self._fleet.send(fold.worker, ack.messages)
        for live, event in fold.shown:
            _show_start(live, event) if isinstance(event, Started) else _show(live, event)
        for live, ending in fold.endings:
            self._endings.show(live, ending)
        for live, back in fold.returned:
            self._returns.returned(live, back)
        if fold.sealed:
            self.on_sealed(fold.worker)

    def _void(self, fold: Fold, seq: int, outcome: Void) -> None:
        """Nothing of this frame counts: its generation was declared lost before it. Otherwise
        memory and store disagree, and the store is right."""
        if fold.worker.state not in (WorkerState.LOST, WorkerState.GONE):
            self._pending[fold.worker.generation].appendleft(fold)
            self._broken(fold.worker, f"frame {seq} is void at {outcome}", None)

    def _done(self, fold: Fold) -> None:
        pending = self._pending[fold.worker.generation]
        if fold in pending:
            pending.remove(fold)
        if not pending:
            del self._pending[fold.worker.generation]

    def _broken(self, worker: Worker, reason: str, culprit: JobId | None) -> None:
        """Take back what frames that will not be committed did in memory, then give the worker
        up: its jobs go on from the journal."""
        for fold in self._pending.pop(worker.generation, ()):
            for live, _ in (*fold.endings, *fold.returned):
                live.state, live.generation = JobState.RUNNING, worker.generation
                worker.held[live.id] = live
        for live in worker.held.values():
            live.loaded = live.loaded and not live.journaled
        self.on_broken(worker, reason, culprit)

    def _event(self, fold: Fold, event: Event) -> None:
        if isinstance(event, Answer):
            self._answer(fold, event)
            return
        live = fold.worker.held.get(event.job)
        if live is None or live.attempt != event.attempt or live.state is not JobState.RUNNING:
            self._stale(fold, event)
            return
        if not live.accepted and isinstance(event, PREMATURE):
            self._reject(fold, live, "it was never accepted")
            return
        try:
            self._fold(fold, live, event)
        except OutOfOrder as error:
            self._reject(fold, live, str(error))

    def _fold(self, fold: Fold, live: LiveJob, event: JobEvent) -> None:
        match event:
            case Delta():
                self._delta(fold, live, event)
            case Accepted():
                self._accepted(fold, live, event)
            case Progress():
                live.record.computed(event.done, live.prompt_tokens)
                fold.operation.progressed(live.id, live.attempt, event.done)
            case Finished():
                self._attempts.finished(fold, live)
            case Stopped():
                self._attempts.stopped(fold, live, event.reason)
            case Failed():
                self._attempts.failed(fold, live, event.failure)
            case Refused():
                self._attempts.refused(fold, live, event)

    def _answer(self, fold: Fold, event: Answer) -> None:
        fold.operation.answered(event.command)
        fold.operation.lazy = False
        if event.code == "sealed" and (receipt := self.sealing(fold.worker, event)) is not None:
            fold.operation.receipt(receipt)
            fold.sealed = True
        if event.code != "not_held":
            return
        for live in list(fold.worker.held.values()):
            if live.stop_command == event.command and live.state is JobState.RUNNING:
                self._attempts.not_held(fold, live)

    def _accepted(self, fold: Fold, live: LiveJob, event: Accepted) -> None:
        fold.operation.lazy = False
        if live.accepted:  # a repeated command has one more answer
            return
        live.accepted = True
        live.snoozes = 0
        self.on_accepted(live)
        now = fold.now
        fingerprint = fold.worker.ready.fingerprint if fold.worker.ready else ""
        fold.operation.accepted(
            live.id,
            live.attempt,
            now=now,
            prompt_tokens=event.prompt_tokens,
            cached_tokens=event.cached_tokens,
            digest=event.digest,
            fingerprint=fingerprint,
            replayed_tokens=live.output.completion_tokens,
        )
        if live.started_at is not None:
            return
        live.started_at = now
        live.prompt_tokens, live.cached_tokens = event.prompt_tokens, event.cached_tokens
        live.attempt_prompt = event.prompt_tokens - event.cached_tokens
        live.prompt_digest, live.fingerprint = event.digest, fingerprint
        started = Started(live.take_seq(), event.prompt_tokens, event.cached_tokens)
        fold.shown.append((live, started))

    def _delta(self, fold: Fold, live: LiveJob, event: Delta) -> None:
        if not event.tokens and not event.parts:
            return
        if not live.output.apply(event.choice, event.index, event.tokens, event.parts):
            return  # counted already: a repeat inside the same attempt changes nothing
        self.tokens += len(event.tokens)
        live.record.tokens += len(event.tokens)
        fold.operation.tokens(live.id, live.attempt, event.choice, len(event.tokens))
        count = numbers(event.parts)
        output = Output(live.take_seq(count), event.choice, event.parts, len(event.tokens))
        if live.journaled:
            fold.operation.lazy = False
            fold.operation.journal(_chunk(live, event, output.seq, count))
            if event.parts:
                fold.shown.append((live, output))
        elif event.parts:
            _show(live, output)

    def _stale(self, fold: Fold, event: JobEvent) -> None:
        """Not a current attempt: nothing counts, and the worker is told to stop it."""
        self.stale_events += 1
        if isinstance(event, Accepted | Delta | Progress):
            self._stop_unknown(fold.worker, event.job, event.attempt)

    def _reject(self, fold: Fold, live: LiveJob, reason: str) -> None:
        _log.error(
            "event_rejected",
            job=live.id,
            attempt=live.attempt,
            generation=fold.worker.generation,
            reason=reason,
        )
        self._attempts.inconsistent(fold, live)
        self._stop_unknown(fold.worker, live.id, live.attempt)

    def _stop_unknown(self, worker: Worker, job: JobId, attempt: int) -> None:
        self._fleet.send(worker, [Cancel(self._epoch, CommandId(0), job, attempt)])


def _nothing(*_args: object) -> None:
    """Nobody is wired yet."""


def _untrue(worker: Worker, frame: Frame) -> str | None:
    """Why this frame cannot be true: a journaled job says something though it never was accepted,
    or its tokens skip some that never came."""
    accepted: set[JobId] = set()
    counts: dict[tuple[JobId, int], int] = {}
    held = worker.held
    for event in frame.events:
        if not isinstance(event, TOLD):
            continue
        live = held.get(event.job)
        if live is None or not live.journaled:
            continue
        if live.attempt != event.attempt or live.state is not JobState.RUNNING:
            continue
        if isinstance(event, Accepted):
            accepted.add(event.job)
        elif not live.accepted and event.job not in accepted:
            return f"{event.job} was never accepted"
        elif isinstance(event, Delta):
            key = (event.job, event.choice)
            known = live.output.choices.get(event.choice)
            count = counts.get(key, known.count if known is not None else 0)
            if event.index > count:
                return f"tokens {count} to {event.index - 1} of {event.job} are missing"
            counts[key] = max(count, event.index + len(event.tokens))
    return None


def _chunk(live: LiveJob, event: Delta, first_event: int, count: int) -> NewChunk:
    """The journal row of a delta."""
    number = live.next_chunk
    live.next_chunk += 1
    return NewChunk(
        job=live.id,
        number=number,
        first_event=first_event,
        last_event=first_event + count - 1,
        attempt=event.attempt,
        choice=event.choice,
        first_token=event.index,
        token_count=len(event.tokens),
        tokens=encode_tokens(event.tokens),
        logprobs=encode_logprobs(event.logprobs),
        parts=encode_parts(event.parts),
    )


def _show(live: LiveJob, output: Output) -> None:
    """Show output in order: never before ``Started``, which waits for its commit."""
    if live.shown_start:
        live.channel.publish(output)
    else:
        live.held_back.append(output)


def _show_start(live: LiveJob, started: Started) -> None:
    live.shown_start = True
    live.channel.publish(started)
    for output in live.held_back:
        live.channel.publish(output)
    live.held_back.clear()
