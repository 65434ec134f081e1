"""What a worker meets of the world: time, threads, the socket, its own process.

The process takes what is here. A simulation gives its own, so that everything else runs in it as
shipped and the same seed does the same.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from shared.launch import EngineSettings, LaunchRecord
from worker import process_facts
from worker.engine.engine import Engine, TextCodec
from worker.inbox import Inbox
from worker.link.session import ProcessFacts, WorkerSession
from worker.link.socket import Link
from worker.preparation import Preparation


def _scripted(settings: EngineSettings) -> Engine:
    from worker.engine.scripted_engine import ScriptedEngine

    return ScriptedEngine(settings)


def _facts() -> ProcessFacts:
    return ProcessFacts(os.getpid(), process_facts.started(), process_facts.rss_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Makes what touches the world. ``clock`` is monotonic seconds."""

    clock: Callable[[], float] = time.monotonic
    inbox: Callable[[], Inbox] = SimpleQueue
    facts: Callable[[], ProcessFacts] = _facts
    link: Callable[[LaunchRecord, WorkerSession, Inbox], Link] = Link
    preparation: Callable[[TextCodec, Inbox, int, float], Preparation] = Preparation
    scripted: Callable[[EngineSettings], Engine] = _scripted
