"""From a launch record to a warm engine, with words for those who wait and an ear for a stop."""

import importlib.metadata
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Literal

import structlog

from shared.launch import EngineSettings, LaunchRecord
from shared.messages import Exit, Loading
from worker.engine.engine import Engine, EngineInfo
from worker.inbox import Inbox, Orphaned, Terminated, ToLoop
from worker.outside import Outside
from worker.vitals import Vitals

Announce = Callable[[Loading], None]

log = structlog.get_logger()


class LeaveWhileLoading(Exception):
    """The worker was told to leave before it was ready."""

    def __init__(self, *, orphaned: bool) -> None:
        super().__init__("told to leave while loading")
        self.orphaned = orphaned


@dataclass(frozen=True, slots=True)
class Loaded:
    """A warm engine."""

    engine: Engine
    info: EngineInfo
    load_s: float


@dataclass(slots=True)
class Loader:
    """Loads the engine of a launch record in the engine thread."""

    launch: LaunchRecord
    inbox: Inbox
    announce: Announce
    vitals: Vitals
    outside: Outside

    def load(self) -> Loaded:
        """Load and warm up.

        Raises:
            LeaveWhileLoading: when a stop came meanwhile.
            Exception: whatever the engine's load raises.
        """
        began = self.outside.clock()
        engine = self._make()
        info = engine.load(self._weights)
        self.vitals.state = "warming"
        self._say("warm_up", 0, 1)
        engine.warm_up()
        self._say("warm_up", 1, 1)
        return Loaded(engine, info, self.outside.clock() - began)

    def _make(self) -> Engine:
        settings = self.launch.engine
        if settings.engine == "scripted":
            return self.outside.scripted(settings)
        self._say("arithmetic", 0, 1)
        cache_dir = Path(self.launch.cache_dir)
        keep_temporary_files_in(jit_dir(cache_dir))
        _load_blas(settings, cache_dir)
        self._say("arithmetic", 1, 1)
        return _mlx(settings)

    def _weights(self, done: int, total: int) -> None:
        self._say("weights", done, total)

    def _say(
        self, stage: Literal["arithmetic", "weights", "warm_up"], done: int, total: int
    ) -> None:
        _leave_if_told(self.inbox)
        self.announce(Loading(self.launch.generation, stage, done, total))


def jit_dir(cache_dir: Path) -> Path:
    """Where MLX's CPU backend keeps what it compiles: private, since it loads from there whatever
    it finds; kept, since compiling again takes seconds; per version, since kernels differ."""
    return cache_dir / "jit" / importlib.metadata.version("mlx")


def keep_temporary_files_in(place: Path) -> None:
    """Make ``place`` this process's directory for temporary files, readable to its user alone."""
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    place.chmod(0o700)
    os.environ["TMPDIR"] = str(place)


def _load_blas(settings: EngineSettings, cache_dir: Path) -> None:
    from worker import blas

    report = blas.load(settings.blas, settings.blas_threads, cache_dir)
    log.info("arithmetic", kind=report.kind, threads=report.threads, cure=report.cure)


def _mlx(settings: EngineSettings) -> Engine:
    from worker.engine.mlx_engine import MlxEngine

    return MlxEngine(settings)


def _leave_if_told(inbox: Inbox) -> None:
    """Look through the inbox and leave everything in it, in order."""
    waiting: list[Sequence[ToLoop]] = []
    while True:
        try:
            waiting.append(inbox.get_nowait())
        except Empty:
            break
    for messages in waiting:
        inbox.put(messages)
    for message in (message for messages in waiting for message in messages):
        if isinstance(message, Exit | Orphaned | Terminated):
            raise LeaveWhileLoading(orphaned=isinstance(message, Orphaned))
