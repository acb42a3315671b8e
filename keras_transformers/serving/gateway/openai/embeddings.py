"""Turns texts into vectors: /v1/embeddings."""

import base64
from collections.abc import Sequence
from typing import Literal

import numpy as np
from fastapi import Response
from pydantic import BaseModel, Field

from keras_transformers.serving.gateway import texts
from keras_transformers.serving.gateway.apis import Asked, Body, answered
from keras_transformers.serving.gateway.backend import Model
from keras_transformers.serving.gateway.openai.errors import openai_router
from keras_transformers.serving.gateway.openai.fields import IGNORED, EmbeddingUsage, Texts
from keras_transformers.serving.gateway.refusals import refusal
from keras_transformers.serving.protocol.floats import shortest
from keras_transformers.serving.protocol.signatures import DEFAULT_SIGNATURE
from keras_transformers.tasks.answers import TOKENIZE_SIGNATURE

__all__: list[str] = []

routes = openai_router()


class EmbeddingRequest(Body):
    """Texts to embed."""

    model: str = Field(description="NAME, NAME@VERSION or NAME@LABEL.")
    input: Texts = Field(
        min_length=1, description="A text or texts, up to --max-rows; not token ids."
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description='"float", the default, or "base64" of float32 numbers, little-endian.'
    )
    dimensions: int | None = Field(
        None,
        ge=1,
        description="How many first numbers of a vector to keep, scaled to the length of all: for "
        "models trained for that (Matryoshka).",
    )
    user: str | None = Field(None, description=IGNORED)


class Embedding(BaseModel):
    """The vector of a text."""

    object: Literal["embedding"] = Field(description="The type.")
    index: int = Field(description="The text's place in the request.")
    embedding: list[float] | str = Field(description="Its numbers, or their bytes in base64.")


class EmbeddingList(BaseModel):
    """The vectors of texts."""

    object: Literal["list"] = Field(description="The type.")
    model: str = Field(description="As in the request.")
    data: list[Embedding] = Field(description="The vectors, in the order of the texts.")
    usage: EmbeddingUsage | None = Field(description="null for exports made by version 1.0.")


@routes.post("/embeddings", response_model=EmbeddingList, response_model_exclude_unset=True)
async def embed(request: EmbeddingRequest, models: Asked) -> Response:
    """Turns texts into vectors."""
    model = await models.find(request.model)
    if "embedding" not in model.signature(DEFAULT_SIGNATURE, "embed texts").outputs:
        raise refusal(
            f"model {model.name!r} is for {model.task or 'an unknown task'}: it returns no "
            "embeddings",
            field="model",
        )
    texts.check_dimensions(model, request.dimensions)
    texts.check_count(model, request.input, "input")
    vectors = await texts.embeddings(model, request.input)
    if request.dimensions and request.dimensions < vectors.shape[1]:
        vectors = shortened(vectors, request.dimensions)
    encoded = _in_base64(vectors) if request.encoding_format == "base64" else shortest(vectors)
    return answered(
        EmbeddingList(
            object="list",
            model=request.model,
            data=[
                Embedding(object="embedding", index=index, embedding=vector)
                for index, vector in enumerate(encoded.tolist())
            ],
            usage=await _usage(model, request.input),
        )
    )


def shortened(vectors: np.ndarray, dimensions: int) -> np.ndarray:
    """Returns the first numbers of vectors, scaled to the length of the whole ones.

    Unit vectors stay unit vectors, as in OpenAI's API; a vector that begins with zeros stays so.

    >>> shortened(np.array([[0.6, 0.0, 0.8]], np.float32), 2)
    array([[1., 0.]], dtype=float32)
    """
    first = vectors[:, :dimensions]
    whole, kept = (np.linalg.norm(part, axis=1, keepdims=True) for part in (vectors, first))
    return first * np.divide(whole, kept, out=np.ones_like(whole), where=kept > 0)


def _in_base64(vectors: np.ndarray) -> np.ndarray:
    rows = vectors.astype("<f4")
    return np.array([base64.b64encode(row.tobytes()).decode() for row in rows], object)


async def _usage(model: Model, inputs: Sequence[str]) -> EmbeddingUsage | None:
    if TOKENIZE_SIGNATURE not in model.signatures:
        return None
    parts = await model.parts(TOKENIZE_SIGNATURE, {"text": texts.column(inputs)})
    count = sum(int(part["num_tokens"].sum()) for part in parts)
    return EmbeddingUsage(prompt_tokens=count, total_tokens=count)
