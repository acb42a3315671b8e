"""Lists the models: /v1/models."""

from typing import Any, Literal

from fastapi import Response
from pydantic import BaseModel, Field

from keras_transformers.serving.gateway.apis import Asked, answered
from keras_transformers.serving.gateway.openai.errors import openai_router

__all__: list[str] = []

routes = openai_router()


class ModelCard(BaseModel):
    """A model."""

    id: str = Field(description="Its name.")
    object: Literal["model"] = Field(description="The type.")
    created: int = Field(description="0: an export does not say when it was made.")
    owned_by: str = Field(description='"keras_transformers".')


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"] = Field(description="The type.")
    data: list[ModelCard] = Field(description="The models, by name.")


def card(name: str) -> dict[str, Any]:
    """Returns the fields of a `ModelCard`."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "keras_transformers"}


@routes.get("/models", response_model=ModelList)
async def list_models(models: Asked) -> Response:
    """Lists the models."""
    cards = [ModelCard(**card(name)) for name in await models.names()]
    return answered(ModelList(object="list", data=cards))


@routes.get("/models/{name:path}", response_model=ModelCard)
async def show_model(name: str, models: Asked) -> Response:
    """Describes a model; the local server's answer is also TF Serving's status of its versions."""
    return answered(ModelCard(**card((await models.find(name)).name)))
