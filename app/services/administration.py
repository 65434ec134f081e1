"""What an operator sees of the workers, and what he can do about them."""

from app.domain.errors import ModelNotFound
from app.domain.view import LoadingView, RestartView, WorkerView
from app.domain.worker_state import WorkerState
from app.services.fleet import Fleet, Worker
from app.services.models import Models
from app.services.starts import Starts


class Administration:
    """Workers as they are, and the budget that their starts have."""

    def __init__(self, fleet: Fleet, models: Models, starts: Starts) -> None:
        self._fleet = fleet
        self._models = models
        self._starts = starts

    def workers(self) -> list[WorkerView]:
        """Every worker whose process may live."""
        return [_view(worker) for worker in self._fleet]

    def restarts(self) -> list[RestartView]:
        """What the deaths of each model's workers allow."""
        return self._starts.restarts()

    def reset(self, model: str) -> RestartView:
        """Forget the deaths of this model's workers; one that is waited for starts now.

        Raises:
            ModelNotFound: there is no such model.
        """
        if self._models.find(model) is None:
            raise ModelNotFound(f"There is no model '{model[:200]}' here.", param="model")
        return self._starts.reset(model)


def _view(worker: Worker) -> WorkerView:
    loading, heartbeat = worker.loading, worker.session.heartbeat
    starting = worker.state is WorkerState.STARTING
    return WorkerView(
        generation=worker.generation,
        model=worker.model,
        state=worker.state,
        pid=None if worker.process is None else worker.process.pid,
        rows=None if worker.ready is None else worker.ready.rows,
        running=None if heartbeat is None else heartbeat.rows,
        held=len(worker.held),
        loading=LoadingView(loading.stage, loading.done, loading.total)
        if loading is not None and starting
        else None,
    )
