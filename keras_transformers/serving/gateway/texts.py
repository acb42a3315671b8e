"""Makes the inputs of signatures from the texts of requests, and finds models for texts."""

from collections.abc import Sequence

import numpy as np

from keras_transformers.serving.gateway.backend import Model
from keras_transformers.serving.gateway.refusals import refusal
from keras_transformers.serving.protocol.errors import Code
from keras_transformers.serving.protocol.floats import shorten_floats
from keras_transformers.serving.protocol.signatures import DEFAULT_SIGNATURE

_RANKING_TASKS = ("reranking", "late_interaction")


def ranks(model: Model) -> bool:
    """Returns whether a model orders documents for a query."""
    return model.task in _RANKING_TASKS


def column(texts: Sequence[str]) -> np.ndarray:
    """Returns texts as an array of bytes, (batch,)."""
    array = np.empty(len(texts), object)
    array[:] = [text.encode("utf-8") for text in texts]
    return array


def check_count(model: Model, texts: Sequence[object], field: str) -> None:
    """Checks how many texts a request has.

    Raises:
        RefusalError: it has none, or too many.
    """
    if not texts:
        raise refusal(f"{field} is empty: send at least one text", field=field)
    if len(texts) > model.max_rows:
        raise refusal(
            f"{field} has {len(texts)} texts, but the limit is {model.max_rows}: split the request",
            field=field,
            code=Code.RESOURCE_EXHAUSTED,
            status=413,
        )


async def embeddings(
    model: Model, texts: Sequence[str], signature_name: str = DEFAULT_SIGNATURE
) -> np.ndarray:
    """Returns the vectors of texts, float32 (batch, dimensions)."""
    (name,) = model.signatures[signature_name].inputs
    parts = await model.parts(signature_name, {name: column(texts)})
    return np.concatenate([part["embedding"] for part in parts]).astype(np.float32, copy=False)


def check_dimensions(model: Model, dimensions: int | None) -> None:
    """Checks how many numbers of each vector a request wants.

    Raises:
        RefusalError: the model's vectors have fewer.
    """
    shape = model.signatures[DEFAULT_SIGNATURE].outputs["embedding"].shape
    size = shape[-1] if shape else None
    if dimensions is not None and size is not None and dimensions > size:
        raise refusal(
            f"dimensions is {dimensions}, but the vectors of model {model.name!r} have {size}: "
            "send at most that, or leave it out",
            field="dimensions",
        )


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors of length 1; those that have it already are unchanged."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    is_unit = np.abs(lengths - 1) < 1e-5  # the rounding of an export that scales them itself
    scaled = vectors / np.where(is_unit | (lengths == 0), 1, lengths)
    return scaled.astype(np.float32)


async def ranking(
    model: Model, query: str, documents: Sequence[str], field: str
) -> list[tuple[int, float]]:
    """Returns the index and the score of each document, the best first.

    Args:
        model: a model that `ranks`.
        query: what the documents may answer.
        documents: at least one.
        field: the request's field that has the documents.

    Raises:
        RefusalError: there are no documents, too many, or one is empty.
    """
    check_count(model, documents, field)
    for index, document in enumerate(documents):
        if not document:
            place = f"{field}.{index}"
            raise refusal(f"{place} is empty, which is not a document: leave it out", field=place)
    inputs = {"text": column([query]), "documents": column(documents)[None]}
    (row,) = await model.rows(DEFAULT_SIGNATURE, inputs)
    scores = shorten_floats(row["scores"])
    return [(index, scores[index]) for index in row["order"]]
