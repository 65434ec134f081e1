"""Loaded by every Python that starts with this directory on its path: notes, in a worker, when
each `RunJob` was decoded. Only `benchmarks.queue.starting` puts it there."""

import os
import sys
from pathlib import Path

STAMPS = "BENCH_STAMPS"

if sys.orig_argv[-2:] == ["-m", "worker"] and STAMPS in os.environ:
    from collections.abc import Sequence

    from shared.messages import RunJob, ToWorker
    from worker.inbox import Command
    from worker.link.session import WorkerSession

    _receive = WorkerSession.receive
    _stamps = Path(os.environ[STAMPS]).open("a", buffering=1)  # noqa: SIM115 - for its life

    def _noting(self: WorkerSession, message: ToWorker, now: float) -> Sequence[Command]:
        if isinstance(message, RunJob):
            _stamps.write(f"{message.job} {now}\n")
        return _receive(self, message, now)

    WorkerSession.receive = _noting
