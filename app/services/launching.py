"""How a worker process is started: its record, its environment, its log."""

import os
from collections.abc import Callable
from pathlib import Path

from app.catalogue.entries import ModelEntry
from app.domain.restart import RestartBudget
from app.services.worker_environment import worker_environment
from app.settings import Settings
from app.supervision.adopted import HOME_VARIABLE
from app.supervision.process import Exit, Process
from app.supervision.processes import Processes
from shared.ids import GenerationId, StoreId
from shared.launch import EngineSettings, LaunchRecord, encode_launch


class Launcher:
    """Starts worker processes of one parent.

    Args:
        endpoint: where workers connect to.
        epoch: this parent's.
        processes: the machine's.
    """

    def __init__(
        self,
        settings: Settings,
        endpoint: str,
        store: StoreId,
        epoch: int,
        processes: Processes,
    ) -> None:
        self.processes = processes
        self._settings = settings
        self._endpoint = endpoint
        self.store = store
        self.epoch = epoch

    @property
    def ready_timeout_s(self) -> float:
        """From the spawn to ``Ready``."""
        return self._settings.worker.ready_timeout_s

    def restart_budget(self) -> RestartBudget:
        """A fresh budget as the settings say."""
        worker = self._settings.worker
        return RestartBudget(limit=worker.restart_limit, window_s=worker.restart_window_s)

    @property
    def logs(self) -> Path:
        """Where the log files lie."""
        return self._settings.storage.data_dir / "logs"

    def log_path(self, generation: GenerationId) -> Path:
        """The generation's own log file."""
        return self.logs / f"{generation}.log"

    def spawn(
        self, generation: GenerationId, entry: ModelEntry, on_exit: Callable[[Exit], None]
    ) -> Process:
        """Start the process.

        Raises:
            OSError: when it cannot be started.
        """
        record = encode_launch(self._record(generation, entry))
        path = self.log_path(generation)
        environment = {**worker_environment(os.environ), HOME_VARIABLE: self.home}
        return self.processes.spawn(["-P", "-m", "worker"], record, path, environment, on_exit)

    def adopt(self, pid: int, started: int, on_exit: Callable[[Exit], None]) -> Process | None:
        """The process that an earlier parent of this data directory started; None when it is
        gone."""
        return self.processes.adopt(pid, started, self.home, on_exit)

    @property
    def home(self) -> str:
        """What tells a worker of this data directory from one of a copy of it."""
        return str(self._settings.storage.data_dir.resolve())

    def _record(self, generation: GenerationId, entry: ModelEntry) -> LaunchRecord:
        worker = self._settings.worker
        return LaunchRecord(
            generation=generation,
            store=self.store,
            epoch=self.epoch,
            model=entry.id,
            endpoint=self._endpoint,
            cache_dir=str(self._settings.storage.cache_dir),
            engine=self._engine(entry),
            heartbeat_interval_s=worker.heartbeat_interval_s,
            orphan_grace_s=worker.orphan_grace_s,
            prepare_timeout_s=worker.prepare_timeout_s,
            prepare_threads=worker.prepare_threads,
            frame_buffer_bytes_max=worker.frame_buffer_bytes_max,
            log_level=self._settings.log.level,
        )

    def _engine(self, entry: ModelEntry) -> EngineSettings:
        worker = self._settings.worker
        return EngineSettings(
            engine=worker.engine,
            model_path=str(entry.path),
            rows=worker.rows,
            prefetch=worker.prefetch,
            prefill_chunk_tokens=worker.prefill_chunk_tokens,
            context_tokens=worker.context_tokens,
            dtype=worker.dtype,
            dequantize=worker.dequantize,
            device=worker.device,
            blas=worker.blas,
            blas_threads=worker.blas_threads,
            scripted=worker.scripted,
        )
