"""Heartbeats both ways, and what silence means.

Silence counts only while this process itself ran: a parent that was stopped or starved gives its
workers the time back that it lost.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from app.domain.worker_state import WorkerState
from app.services.clock import Clock
from app.services.fleet import Fleet, Worker
from app.settings import WorkerSettings
from app.supervision.log_file import cap

_log = structlog.get_logger("liveness")


class Replacer(Protocol):
    """Who acts on a silent worker."""

    def replace(self, worker: Worker, reason: str) -> None:
        """Give this worker up."""
        ...


class Liveness:
    """Pulses every ``heartbeat_interval_s``.

    Args:
        keep_path: sees that the workers' socket can be found, and says if it could not.
    """

    def __init__(
        self,
        fleet: Fleet,
        workers: Replacer,
        clock: Clock,
        settings: WorkerSettings,
        keep_path: Callable[[], bool],
    ) -> None:
        self._fleet = fleet
        self._keep_path = keep_path
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
        lost_s = max(0.0, now - self._last - 2 * self._settings.heartbeat_interval_s)
        self._last = now
        if self._keep_path():
            _log.warning("socket_bound_again")
        for worker in self._fleet:
            self._watch(worker, now, lost_s)
        self._again()

    def _watch(self, worker: Worker, now: float, lost_s: float) -> None:
        cap(worker.log_path, self._settings.log_bytes_max)
        if worker.state not in (WorkerState.STARTING, WorkerState.READY):
            return
        session = worker.session
        if session.heard_at is not None:
            session.heard_at += lost_s
            silent_s = now - session.heard_at
            if silent_s > self._settings.heartbeat_timeout_s:
                self._workers.replace(worker, f"no heartbeat for {silent_s:.1f} s")
                return
        self._fleet.send(worker, session.pulse().messages)
