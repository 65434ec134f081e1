"""The worker process: composition root, and the order of start and stop.

    launch record ─▶ link thread says Hello ─▶ engine loads and warms up ─▶ Ready ─▶ loop ─▶ flush

The main thread is the engine thread. SIGTERM is an orderly stop; SIGINT is ignored, since a Ctrl-C
is meant for the parent, which stops its workers in its own order.
"""

import faulthandler
import os
import signal
import sys
import threading
from types import FrameType
from typing import Final

import structlog

from shared.launch import (
    EXIT_LOAD_FAILED,
    EXIT_NO_LAUNCH_RECORD,
    EXIT_OK,
    EXIT_ORPHANED,
    EXIT_PROTOCOL,
    LaunchRecord,
)
from shared.messages import Ready
from worker import log as worker_log
from worker.inbox import INBOX_LISTS_MAX, Terminated
from worker.launching import NoLaunchRecord, OtherProtocol, detach_input, read_launch
from worker.link.session import WorkerSession
from worker.loading import LeaveWhileLoading, Loaded, Loader
from worker.loop import Loop
from worker.outside import Outside
from worker.rows import Rows
from worker.vitals import Vitals

FLUSH_S: Final = 2.0
"""How long the last frames may take to be acknowledged before the process ends all the same."""

SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread may keep the interpreter while the link thread has a frame to send."""

EXIT_THREAD_DIED: Final = 70

log = structlog.get_logger()


def main() -> int:
    """Run a worker; returns its exit code."""
    faulthandler.enable()
    try:
        launch = read_launch(sys.stdin.buffer)
    except NoLaunchRecord as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_NO_LAUNCH_RECORD
    except OtherProtocol as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_PROTOCOL
    detach_input()
    worker_log.configure(launch.log_level, launch.generation)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    threading.excepthook = _die_with_thread
    worker = Worker(launch)
    signal.signal(signal.SIGTERM, worker.terminated)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return worker.run()


class Worker:
    """One generation: everything it is made of, and its life in order."""

    def __init__(self, launch: LaunchRecord, outside: Outside | None = None) -> None:
        self._launch = launch
        self._outside = outside or Outside()
        self._inbox = self._outside.inbox()
        self._vitals = Vitals()
        self._link = self._outside.link(launch, self._session(), self._inbox)

    def run(self) -> int:
        """Start, serve, stop."""
        log.info("started", model=self._launch.model, engine=self._launch.engine.engine)
        self._link.start()
        try:
            loaded = Loader(
                self._launch, self._inbox, self._link.announce, self._vitals, self._outside
            ).load()
        except LeaveWhileLoading as leave:
            self._link.close(0)
            return EXIT_ORPHANED if leave.orphaned else EXIT_OK
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent shows it as the reason
            return self._load_failed(error)
        return self._serve(loaded)

    def _serve(self, loaded: Loaded) -> int:
        settings = self._launch.engine
        rows = Rows(settings.rows, settings.prefetch)
        preparation = self._outside.preparation(
            loaded.engine.text(),
            self._inbox,
            self._launch.prepare_threads,
            self._launch.prepare_timeout_s,
        )
        loop = Loop(
            loaded.engine,
            loaded.info,
            rows,
            self._inbox,
            self._link,
            preparation,
            self._vitals,
            self._outside.clock,
        )
        preparation.start()
        self._vitals.state = "serving"
        self._link.announce(self._ready(loaded, rows))
        log.info("ready", load_s=round(loaded.load_s, 3), arithmetic=loaded.info.arithmetic)
        exit_code = loop.run()
        self._link.close(0 if exit_code == EXIT_ORPHANED else FLUSH_S)
        log.info("leaving", exit_code=exit_code, steps=self._vitals.steps)
        return exit_code

    def _load_failed(self, error: Exception) -> int:
        self._link.close(0)
        reason = str(error) or type(error).__name__
        # The last line: the parent shows the end of this log to whoever waits for the model.
        log.error("load failed", reason=reason, where=worker_log.origin(error)["where"])
        return EXIT_LOAD_FAILED

    def _ready(self, loaded: Loaded, rows: Rows) -> Ready:
        info = loaded.info
        return Ready(
            generation=self._launch.generation,
            rows=rows.rows,
            context_tokens=info.context_tokens,
            fingerprint=info.fingerprint,
            credit=rows.credit,
            load_s=loaded.load_s,
            arithmetic=info.arithmetic,
        )

    def _session(self) -> WorkerSession:
        outside = self._outside
        return WorkerSession(
            self._launch, outside.facts(), self._vitals, outside.clock(), self._inbox_has_room
        )

    def _inbox_has_room(self) -> bool:
        return self._inbox.qsize() < INBOX_LISTS_MAX

    def terminated(self, _signal: int, _frame: FrameType | None) -> None:
        """SIGTERM came: an orderly stop."""
        self._inbox.put((Terminated(),))


def _die_with_thread(args: threading.ExceptHookArgs) -> None:
    """A worker without one of its threads is of no use, and would only look alive."""
    error = args.exc_value or args.exc_type()
    log.critical("a thread died", **worker_log.origin(error))
    os._exit(EXIT_THREAD_DIED)
