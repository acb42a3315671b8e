"""Returns the vectors of a pipeline's tokens."""

from typing import Any, NamedTuple

import keras
import numpy as np

from keras_transformers.models.anatomy import anatomy

__all__ = ["TokenVectors", "token_vectors"]


class TokenVectors(NamedTuple):
    """Holds tokens and their vectors.

    Attributes:
        tokens: the tokens, as in the vocabulary.
        vectors: float32 (tokens, hidden), the rows of the embedding matrix.
    """

    tokens: list[str]
    vectors: np.ndarray


def token_vectors(pipeline: Any, count: int | None = None) -> TokenVectors:
    """Returns the embedding matrix of a pipeline's model, with the token of each row.

    Args:
        pipeline: any pipeline whose model embeds tokens. If a translator has a vocabulary for each
            side, the result is that of the source.
        count: how many tokens, from the first; None for all.

    Raises:
        ValueError: the model embeds no tokens, such as one of characters or images.

    Example:
        kt.inspection.token_vectors(kt.load("minilm")).vectors.shape
    """
    parts = anatomy(pipeline.model)
    embedding = (parts.encoder or parts).token_embedding
    if embedding is None:
        raise ValueError(f"{type(pipeline).__name__}: its model embeds no tokens")
    tokens = next(iter(pipeline.tokenizers.values())).vocabulary[:count]
    rows = keras.ops.convert_to_numpy(embedding.embeddings[: len(tokens)])
    return TokenVectors(tokens, rows.astype(np.float32))
