"""Heartbeats both ways, and what silence means.

Silence counts only while this process itself ran and listened: a parent that was stopped or
starved, or leaves messages unread because it cannot store them, gives its workers the time back
that it lost.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from app.domain.wedged import stall_limit_s
from app.domain.worker_state import WorkerState
from app.services.clock import Clock
from app.services.fleet import Fleet, Worker
from app.settings import WorkerSettings
from app.supervision.log_file import cap


class Replacer(Protocol):
    """Who acts on a silent worker."""

    def stalled(self, worker: Worker, reason: str) -> None:
        """Give this worker up: it does nothing any more."""
        ...


class Liveness:
    """Pulses every ``heartbeat_interval_s``.

    Args:
        keep_path: sees that the workers' socket can be found.
        unread: whether messages are left unread at the moment.
    """

    def __init__(
        self,
        fleet: Fleet,
        workers: Replacer,
        clock: Clock,
        settings: WorkerSettings,
        keep_path: Callable[[], None],
        unread: Callable[[], bool],
    ) -> None:
        self._fleet = fleet
        self._keep_path = keep_path
        self._unread = unread
        self._workers = workers
        self._clock = clock
        self._settings = settings
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0

    def start(self) -> None:
        """Begin to pulse."""
        self._last = self._clock.monotonic()
        self._again()

    def stop(self) -> None:
        """Pulse no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _again(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._settings.heartbeat_interval_s, self._pulse)

    def _pulse(self) -> None:
        now = self._clock.monotonic()
        passed_s, self._last = now - self._last, now
        lost_s = max(0.0, passed_s - 2 * self._settings.heartbeat_interval_s)
        if self._unread():
            lost_s = passed_s
        self._keep_path()
        for worker in self._fleet:
            self._watch(worker, now, lost_s)
        self._again()

    def _watch(self, worker: Worker, now: float, lost_s: float) -> None:
        cap(worker.log_path, self._settings.log_bytes_max)
        if worker.state in (WorkerState.LOST, WorkerState.GONE):
            return
        session = worker.session
        if session.heard_at is not None:
            session.heard_at += lost_s
            silent_s = now - session.heard_at
            if silent_s > self._settings.heartbeat_timeout_s:
                self._workers.stalled(worker, f"no heartbeat for {silent_s:.1f} s")
                return
        if (stalled_s := self._stalled_s(worker, now, lost_s)) is not None:
            self._workers.stalled(worker, f"its engine has finished nothing for {stalled_s:.1f} s")
            return
        self._fleet.send(worker, session.pulse().messages)

    def _stalled_s(self, worker: Worker, now: float, lost_s: float) -> float | None:
        """For how long the engine has stood still, if that is too long."""
        heartbeat = worker.session.heartbeat
        if heartbeat is None:
            return None
        engine = worker.engine
        engine.forgive(lost_s)
        engine.beat(heartbeat, now, unanswered=_owes_answers(worker))
        limit_s = stall_limit_s(
            heartbeat, self._settings.engine_stall_s, self._settings.prepare_timeout_s
        )
        stalled_s = now - engine.since
        return stalled_s if stalled_s > limit_s else None


def _owes_answers(worker: Worker) -> bool:
    """Whether the worker was sent something that it has not answered."""
    return any(
        live.sent and (not live.accepted or live.stop_command or live.preempt_command)
        for live in worker.held.values()
    )
