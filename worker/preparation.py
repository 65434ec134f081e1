"""Threads that render and tokenize prompts, so that a long one holds up no row.

A thread works on one job at a time and notes which and since when; the engine thread reads that to
tell a job that takes too long. Its results travel through the inbox like all else.
"""

import hashlib
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

import structlog

from shared.failures import Failure
from shared.messages import RunJob
from shared.requests import JobRequest
from worker.engine.engine import TextCodec
from worker.inbox import Inbox, NotPrepared, Prepared, ToLoop
from worker.log import origin
from worker.rows import HeldJob, Stage

GATHER_S: Final = 0.001
"""Results of one hand-over are kept together for so long: many small prompts make one wake-up."""

DIGEST_HEX_DIGITS: Final = 32

log = structlog.get_logger()


def prompt_digest(tokens: Sequence[int]) -> str:
    """What both sides compare prompts by."""
    return hashlib.sha256(array("I", tokens).tobytes()).hexdigest()[:DIGEST_HEX_DIGITS]


def prepare(codec: TextCodec, run: RunJob) -> Prepared | NotPrepared:
    """Token ids of the job's prompt, or why there are none."""
    request = run.request
    if request is None:
        raise ValueError("a command without its body reached the preparation")
    try:
        tokens = _tokens(codec, request, run.created_at)
    except ValueError as error:
        failure = Failure("template_error", str(error), param="messages")
        return NotPrepared(run.job, run.attempt, failure)
    return Prepared(run.job, run.attempt, tokens, prompt_digest(tokens))


def _tokens(codec: TextCodec, request: JobRequest, created_at: int) -> list[int]:
    return codec.render_chat(request.messages, created_at)


class _Desk:
    """What one thread is at. Written by it alone."""

    __slots__ = ("held", "since")

    def __init__(self) -> None:
        self.held: HeldJob | None = None
        self.since = 0.0


class Preparation:
    """The threads and what waits for them, bounded by the jobs held.

    ``submit``, ``overdue``, ``stuck`` and ``patience_s`` are for the engine thread.
    """

    def __init__(
        self,
        codec: TextCodec,
        inbox: Inbox,
        threads: int,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._codec = codec
        self._inbox = inbox
        self._timeout_s = timeout_s
        self._clock = clock
        self._queue: SimpleQueue[Sequence[HeldJob]] = SimpleQueue()
        self._desks = [_Desk() for _ in range(max(1, threads))]

    def start(self) -> None:
        """Start the threads; they end with the process."""
        for number, desk in enumerate(self._desks):
            threading.Thread(
                target=self._run, args=(desk,), name=f"preparation-{number}", daemon=True
            ).start()

    def submit(self, jobs: Sequence[HeldJob]) -> None:
        """Prepare these; each comes back through the inbox as ``Prepared`` or ``NotPrepared``."""
        threads = len(self._desks)
        for first in range(min(threads, len(jobs))):
            self._queue.put(jobs[first::threads])

    def overdue(self, now: float) -> list[HeldJob]:
        """Jobs that a thread has been at for too long."""
        return [held for held, since in self._occupied() if now - since >= self._timeout_s]

    def stuck(self, now: float) -> bool:
        """Whether a thread has not come back for as long again after its job was given up."""
        return any(now - since >= 2 * self._timeout_s for _, since in self._occupied())

    def patience_s(self, now: float) -> float:
        """How long nothing can become overdue or stuck."""
        waits = [self._next_look(now, since) for _, since in self._occupied()]
        return min(waits, default=self._timeout_s)

    @property
    def busy(self) -> bool:
        """Whether a thread is at a job, even one that was given up."""
        return any(desk.held is not None for desk in self._desks)

    def _next_look(self, now: float, since: float) -> float:
        spent_s = now - since
        limit_s = self._timeout_s if spent_s < self._timeout_s else 2 * self._timeout_s
        return max(0.0, limit_s - spent_s)

    def _occupied(self) -> list[tuple[HeldJob, float]]:
        # ``since`` is written before ``held``, so a job is never seen with its predecessor's time.
        return [(held, desk.since) for desk in self._desks if (held := desk.held) is not None]

    def _run(self, desk: _Desk) -> None:
        while True:
            self._work_off(desk, self._queue.get())

    def _work_off(self, desk: _Desk, jobs: Sequence[HeldJob]) -> None:
        results: list[ToLoop] = []
        gathered_from = self._clock()
        for held in jobs:
            if held.stage is Stage.GONE:
                continue
            desk.since = now = self._clock()
            if results and now - gathered_from >= GATHER_S:
                self._inbox.put(results)
                results, gathered_from = [], now
            desk.held = held
            results.append(self._contained(held.run))
            desk.held = None
        if results:
            self._inbox.put(results)

    def _contained(self, run: RunJob) -> Prepared | NotPrepared:
        try:
            return prepare(self._codec, run)
        except Exception as error:  # noqa: BLE001 - the loop's containment, on this thread
            return _broken(run, error)


def _broken(run: RunJob, error: Exception) -> NotPrepared:
    log.error("preparing failed", job=run.job, attempt=run.attempt, **origin(error))
    failure = Failure("internal_error", "The prompt could not be prepared.")
    return NotPrepared(run.job, run.attempt, failure)
