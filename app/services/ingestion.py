"""Frames in: each becomes one operation of the writer, and what is shown follows its commit.

(a) Output of attached jobs is shown at once, since nothing about it is promised to outlive this
    process; nothing else is.
(b) The whole frame, all its jobs, is one operation: token counts, endings with their reports,
    answered commands, and the generation's cursor, which makes a frame count once.
(c) After the commit: starts, endings, and the ``Ack`` that lets the worker forget the frame.

An event that belongs to no current attempt changes nothing and is answered with a cancel, so that a
worker never computes for nobody. An event that is wrong ends its own job only.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from app.domain.events import Output, Started
from app.domain.job import Ending, JobState
from app.domain.transitions import failed, finished, refused, stopped
from app.services.clock import Clock
from app.services.endings import Endings, recorded
from app.services.fleet import Fleet, Worker
from app.services.ledger import LiveJob
from app.services.relay import Relay
from app.storage.endings import AttemptOutcome
from app.storage.frames import FrameOperation
from app.storage.operations import Committed
from app.storage.writer import OutcomeFuture, Writer
from shared.failures import Failure
from shared.ids import CommandId, JobId
from shared.messages import (
    Accepted,
    Answer,
    Cancel,
    Delta,
    Event,
    Failed,
    Finish,
    Finished,
    Frame,
    Progress,
    Refused,
    Stopped,
)

_log = structlog.get_logger("ingestion")


class EventRejected(Exception):
    """The worker's event contradicts what it said before."""


@dataclass(slots=True)
class Fold:
    """One frame on its way into the store, and what to show once it is there."""

    worker: Worker
    operation: FrameOperation
    starts: list[tuple[LiveJob, Started]] = field(default_factory=list[tuple[LiveJob, Started]])
    endings: list[tuple[LiveJob, Ending]] = field(default_factory=list[tuple[LiveJob, Ending]])


class Ingestion:
    """Takes frames in, in order, each once: the session in front sees to both."""

    def __init__(
        self,
        fleet: Fleet,
        relay: Relay,
        endings: Endings,
        writer: Writer,
        clock: Clock,
        epoch: int,
        on_broken: Callable[[Worker, str], None],
    ) -> None:
        self._fleet = fleet
        self._relay = relay
        self._endings = endings
        self._writer = writer
        self._clock = clock
        self._epoch = epoch
        self._on_broken = on_broken
        self.stale_events = 0
        self.tokens = 0

    def frame(self, worker: Worker, frame: Frame) -> None:
        """Fold the next frame of this worker."""
        fold = Fold(worker, FrameOperation(worker.generation, frame.seq))
        for event in frame.events:
            self._event(fold, event)
        worker.credited(frame.credit)
        lazy = all(isinstance(event, Delta | Progress) for event in frame.events)
        future = self._writer.submit(fold.operation.build(lazy=lazy))
        future.add_done_callback(partial(self._folded, fold, frame.seq))
        self._relay.pump(worker.model)

    def _folded(self, fold: Fold, seq: int, future: OutcomeFuture) -> None:
        if future.cancelled() or future.exception() is not None:
            self._on_broken(fold.worker, f"frame {seq} could not be stored: {future.exception()}")
            return
        if not isinstance(future.result(), Committed):
            return  # the generation was declared lost before this frame: nothing of it counts
        ack = fold.worker.session.frame_committed(seq)
        self._fleet.send(fold.worker, ack.messages)
        for live, started in fold.starts:
            _show_start(live, started)
        for live, ending in fold.endings:
            self._endings.show(live, ending)

    def _event(self, fold: Fold, event: Event) -> None:
        if isinstance(event, Answer):
            fold.operation.answered(event.command)
            return
        live = self._current(fold.worker, event.job, event.attempt)
        if live is None:
            self._stale(fold, event)
            return
        try:
            self._fold(fold, live, event)
        except EventRejected as error:
            self._reject(fold, live, str(error))

    def _current(self, worker: Worker, job: JobId, attempt: int) -> LiveJob | None:
        live = worker.held.get(job)
        if live is None or live.attempt != attempt or live.state is not JobState.RUNNING:
            return None
        return live

    def _fold(self, fold: Fold, live: LiveJob, event: Event) -> None:
        match event:
            case Delta():
                self._delta(fold, live, event)
            case Accepted():
                self._accepted(fold, live, event)
            case Progress():
                fold.operation.progressed(live.id, live.attempt, event.done)
            case Finished():
                self._end(fold, live, "finished", finished(live.stop))
            case Stopped():
                self._end(fold, live, "stopped", _stopped(live, event))
            case Failed():
                self._end(fold, live, "failed", failed(event.failure, live.stop))
            case Refused():
                self._end(fold, live, "refused", refused(event.failure, live.stop))
            case Answer():
                pass

    def _accepted(self, fold: Fold, live: LiveJob, event: Accepted) -> None:
        fold.operation.answered(event.command)
        fold.operation.accepted(
            live.id,
            live.attempt,
            now=self._clock.now(),
            prompt_tokens=event.prompt_tokens,
            cached_tokens=event.cached_tokens,
            digest=event.digest,
            fingerprint=fold.worker.ready.fingerprint if fold.worker.ready else "",
        )
        if live.accepted:
            return
        live.accepted = True
        live.prompt_tokens = event.prompt_tokens
        live.cached_tokens = event.cached_tokens
        started = Started(live.take_seq(), event.prompt_tokens, event.cached_tokens)
        fold.starts.append((live, started))

    def _delta(self, fold: Fold, live: LiveJob, event: Delta) -> None:
        known = live.tokens.setdefault(event.choice, [])
        if event.index < len(known):
            return  # already counted: a repeat inside the same attempt changes nothing
        if event.index > len(known):
            raise EventRejected(f"tokens {len(known)} to {event.index - 1} are missing")
        known.extend(event.tokens)
        self.tokens += len(event.tokens)
        fold.operation.tokens(live.id, live.attempt, event.choice, len(event.tokens))
        if not event.parts:
            return
        for part in event.parts:
            if isinstance(part, Finish):
                live.finish_reason = part.reason
        seq = live.take_seq(len(event.parts))
        _show(live, Output(seq, event.choice, event.parts, len(event.tokens)))

    def _end(
        self,
        fold: Fold,
        live: LiveJob,
        attempt: AttemptOutcome,
        job: tuple[JobState, Failure | None],
        *,
        complete: bool = True,
    ) -> None:
        """The attempt came to this, and the job with it to that."""
        ending = self._endings.decide(live, *job, complete=complete)
        fold.worker.held.pop(live.id, None)
        fold.operation.ended(
            live.new, recorded(live.new, ending), stop_reason=live.stop, outcome=attempt
        )
        fold.endings.append((live, ending))

    def _stale(self, fold: Fold, event: Event) -> None:
        """Not a current attempt: nothing counts, and the worker is told to stop it."""
        self.stale_events += 1
        if isinstance(event, Accepted | Delta | Progress):
            cancel = Cancel(self._epoch, CommandId(0), event.job, event.attempt)
            self._fleet.send(fold.worker, [cancel])

    def _reject(self, fold: Fold, live: LiveJob, reason: str) -> None:
        _log.error(
            "event_rejected",
            job=live.id,
            attempt=live.attempt,
            generation=fold.worker.generation,
            reason=reason,
        )
        failure = Failure(code="internal_error", message="The worker's output was inconsistent.")
        self._end(fold, live, "failed", failed(failure, live.stop), complete=False)
        cancel = Cancel(self._epoch, CommandId(0), live.id, live.attempt)
        self._fleet.send(fold.worker, [cancel])


def _stopped(live: LiveJob, event: Stopped) -> tuple[JobState, Failure | None]:
    if live.stop is not None:
        return stopped(live.stop)
    return JobState.FAILED, Failure(
        code="worker_crashed",
        message=f"The worker stopped this request ({event.reason}).",
        retryable=True,
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
