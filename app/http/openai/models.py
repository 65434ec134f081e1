"""``GET /v1/models`` and ``GET /v1/models/{id}``. Asking starts no worker."""

from pathlib import PurePosixPath
from typing import Annotated

from litestar import Controller, MediaType, get
from litestar.di import NamedDependency
from litestar.params import Parameter

from app.domain.errors import ModelNotFound
from app.http.openai.schema import ModelList, ModelObject
from app.http.ports import ModelCard, Overview


class ModelsDoor:
    """Lists models in OpenAI's words."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview

    def all(self) -> ModelList:
        """Every model that can be asked for."""
        return ModelList(data=[_object(card) for card in self._overview.models()])

    def one(self, model_id: str) -> ModelObject:
        """One of them.

        Raises:
            ModelNotFound: naming the ids that would work.
        """
        cards = self._overview.models()
        for card in cards:
            if card.id == model_id:
                return _object(card)
        known = ", ".join(card.id for card in cards) or "none"
        raise ModelNotFound(f"There is no model '{model_id}' here. Models: {known}.", param="model")


class ModelsController(Controller):
    """The models that can be asked for."""

    path = "/v1/models"
    tags = ("Models",)

    @get(operation_id="listModels", summary="List models", media_type=MediaType.JSON)
    async def list_models(self, models: NamedDependency[ModelsDoor]) -> ModelList:
        """All models."""
        return models.all()

    @get(
        "/{model_id:path}",
        operation_id="retrieveModel",
        summary="Retrieve a model",
        media_type=MediaType.JSON,
    )
    async def retrieve_model(
        self,
        model_id: Annotated[PurePosixPath, Parameter(description="May contain slashes.")],
        models: NamedDependency[ModelsDoor],
    ) -> ModelObject:
        """One model, by the id that requests name it with."""
        return models.one(str(model_id).lstrip("/"))


def _object(card: ModelCard) -> ModelObject:
    return ModelObject(
        id=card.id,
        created=card.created,
        owned_by=card.owned_by,
        context_length=card.context_length,
    )
