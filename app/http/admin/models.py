"""``POST /admin/v1/models/{id}/reset``: the cause of a model's dying workers is cured."""

from pathlib import PurePosixPath
from typing import Annotated, Any, Final

import msgspec
from litestar import Controller, MediaType, Request, Response, post
from litestar.di import NamedDependency
from litestar.exceptions import NotFoundException
from litestar.params import Parameter

from app.http.admin.schema import RestartObject, restart_object
from app.http.documentation import answers
from app.http.ports import Administration
from app.http.query import Query

_RESET: Final = "/reset"
_JSON: Final = msgspec.json.Encoder()


class WorkersDoor:
    """Turns operators' requests about models into calls of the services."""

    def __init__(self, administration: Administration) -> None:
        self._administration = administration

    def act(self, request: Request[Any, Any, Any], target: str) -> Response[bytes]:
        """What is asked of a model, whose id may have slashes itself.

        Raises:
            ModelNotFound: there is no such model.
            NotFoundException: nothing like that can be asked.
        """
        Query(request)
        model = target.removesuffix(_RESET)
        if model == target or not model:
            raise NotFoundException
        answer = restart_object(self._administration.reset(model))
        return Response(_JSON.encode(answer), status_code=200, media_type=MediaType.JSON)


class AdminModelsController(Controller):
    """Operating the models' workers."""

    path = "/admin/v1/models"
    tags = ("Admin",)

    @post(
        "/{target:path}",
        operation_id="resetModel",
        summary="Reset the restart budget of a model",
        status_code=200,
        responses=answers(RestartObject, 200, 404),
    )
    async def reset(
        self,
        request: Request[Any, Any, Any],
        target: Annotated[PurePosixPath, Parameter(description="The model's id, then `/reset`.")],
        workers: NamedDependency[WorkersDoor],
    ) -> Response[Any]:
        """Forgets the deaths of its workers; one that is waited for starts now."""
        return workers.act(request, str(target).lstrip("/"))
