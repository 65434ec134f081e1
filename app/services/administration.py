"""What an operator sees of the workers, and what he can do about them."""

from collections.abc import Callable
from typing import Final

from app.domain.errors import ModelNotFound
from app.domain.view import LoadingView, RestartView, WorkerView
from app.domain.worker_state import WorkerState
from app.services.fleet import Fleet, Worker
from app.services.models import Models
from app.services.starts import Starts

LEAVING_S: Final = 5.0


class Administration:
    """Workers as they are, and the budget that their starts have."""

    def __init__(
        self,
        fleet: Fleet,
        models: Models,
        starts: Starts,
        end: Callable[[Worker], None],
    ) -> None:
        self._fleet = fleet
        self._models = models
        self._starts = starts
        self._end = end

    def workers(self) -> list[WorkerView]:
        """Every worker whose process may live."""
        return [_view(worker) for worker in self._fleet]

    def restarts(self) -> list[RestartView]:
        """What the deaths of each model's workers allow."""
        return self._starts.restarts()

    def leaving(self, model: str) -> tuple[str, float] | None:
        """Why no other worker of this model starts while one that was prepared to stop is there,
        and for how many seconds at least."""
        for worker in self._fleet:
            if worker.model == model and worker.state is WorkerState.STOPPING:
                pid = "" if worker.process is None else f" (process {worker.process.pid})"
                return (
                    f"the worker of '{model}'{pid} was prepared to stop, and the next one waits "
                    "for its end; a reset of the model tells it to leave",
                    LEAVING_S,
                )
        return None

    def reset(self, model: str) -> RestartView:
        """Forget the deaths of this model's workers; one that is waited for starts now, and one
        that was prepared to stop is told to leave.

        Raises:
            ModelNotFound: there is no such model.
        """
        if self._models.find(model) is None:
            raise ModelNotFound(f"There is no model '{model[:200]}' here.", param="model")
        for worker in list(self._fleet):
            if worker.model == model and worker.state is WorkerState.STOPPING:
                self._end(worker)
        return self._starts.reset(model)


def _view(worker: Worker) -> WorkerView:
    loading, heartbeat = worker.loading, worker.session.heartbeat
    starting = worker.state is WorkerState.STARTING
    return WorkerView(
        generation=worker.generation,
        model=worker.model,
        state=worker.state,
        gate=worker.gate,
        pid=None if worker.process is None else worker.process.pid,
        rows=None if worker.ready is None else worker.ready.rows,
        running=None if heartbeat is None else heartbeat.rows,
        held=len(worker.held),
        loading=LoadingView(loading.stage, loading.done, loading.total)
        if loading is not None and starting
        else None,
    )
