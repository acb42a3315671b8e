"""Lists the models: /v1/models."""

from typing import Literal

from pydantic import BaseModel

from keras_transformers.serving.gateway.apis import Asked, router
from keras_transformers.serving.gateway.openai.errors import error_shape

__all__: list[str] = []

routes = router(error_shape, prefix="/v1", tags=["OpenAI"])


class ModelCard(BaseModel):
    """A model."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "keras_transformers"


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


@routes.get("/models")
async def list_models(models: Asked) -> ModelList:
    """Lists the models."""
    return ModelList(data=[ModelCard(id=name) for name in await models.names()])


@routes.get("/models/{name:path}")
async def show_model(name: str, models: Asked) -> ModelCard:
    """Describes one model."""
    return ModelCard(id=(await models.find(name)).name)
