"""Static vectors: Tulkens & van Dongen 2024, "Model2Vec: Fast State-of-the-Art Static Embeddings".

A table with one vector per token, and no layers above it: a text's vector is the mean of its
tokens' vectors (https://doi.org/10.5281/zenodo.17270888). sentence-transformers calls it
`StaticEmbedding`. `fitting.distil_static` makes a table from an encoder, and
`fitting.train_static` trains it to give the encoder's vectors.

    table = static_vectors(vocabulary_size=tokenizer.vocabulary_size, embedding_dim=256)
    embed = pipelines.Embedder(table, tokenizer, max_sequence_length=512)

There are no named sizes: a table has as many rows as its tokenizer has tokens.
"""

import keras
import numpy as np

from keras_transformers.layers import TokenEmbedding

__all__ = ["num_parameters", "static_vectors"]

_TABLE, _WEIGHT = "token_embedding", "token_weight"


def static_vectors(
    *,
    vocabulary_size: int,
    embedding_dim: int = 256,
    weighted: bool = False,
    initializer_range: float = 0.02,
    name: str = "static_vectors",
) -> keras.Model:
    """Builds a table of vectors, and optionally a weight for each token's vector.

    With V tokens and H dimensions, it has V H parameters, or V (H + 1) with weights.

    Args:
        vocabulary_size: number of tokens, V.
        embedding_dim: width of the vectors, H.
        weighted: whether each vector is multiplied by its token's weight, a parameter that starts
            at 1.
        initializer_range: standard deviation of the table's initial truncated normal.
        name: the model's name.

    Returns:
        A functional model. Inputs: `token_ids` int32 (batch, length) of any length;
        `padding_mask` bool (batch, length), True at real tokens. Output: `sequence_output`
        (batch, length, H).

    Raises:
        ValueError: `vocabulary_size` or `embedding_dim` is below 1.

    Example:
        >>> static_vectors(vocabulary_size=30, embedding_dim=4).count_params()
        120
        >>> static_vectors(vocabulary_size=30, embedding_dim=4, weighted=True).count_params()
        150
    """
    if vocabulary_size < 1 or embedding_dim < 1:
        raise ValueError(
            f"vocabulary_size={vocabulary_size}, embedding_dim={embedding_dim}: expected at least 1"
        )
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    vectors = TokenEmbedding(
        vocabulary_size,
        embedding_dim,
        embeddings_initializer=keras.initializers.TruncatedNormal(stddev=initializer_range),
        name=_TABLE,
    )(token_ids)
    if weighted:
        weights = TokenEmbedding(vocabulary_size, 1, embeddings_initializer="ones", name=_WEIGHT)(
            token_ids
        )
        vectors = keras.layers.Multiply(name="weighted")([vectors, weights])
    return keras.Model(
        inputs={"token_ids": token_ids, "padding_mask": padding_mask},
        outputs={"sequence_output": vectors},
        name=name,
    )


def num_parameters(
    *, vocabulary_size: int, embedding_dim: int = 256, weighted: bool = False
) -> int:
    """Computes the parameter count of `static_vectors` with these arguments, without building it.

    Example:
        >>> num_parameters(vocabulary_size=29528)  # potion-base-8M
        7559168
    """
    return vocabulary_size * (embedding_dim + weighted)


def table_of(model: keras.Model) -> np.ndarray | None:
    """Returns the vectors that a model looks up, times their weights; None if it does more.

    Args:
        model: any model, such as one from `static_vectors`.

    Returns:
        float32 (V, H), or None.
    """
    tables = {layer.name: layer for layer in model.layers if layer.weights}
    others = (layer for layer in model.layers if not layer.weights)
    kinds = (keras.layers.InputLayer, keras.layers.Multiply)
    if _TABLE not in tables or not tables.keys() <= {_TABLE, _WEIGHT}:
        return None
    if not all(isinstance(layer, TokenEmbedding) for layer in tables.values()):
        return None
    if not all(isinstance(layer, kinds) for layer in others) or tables[_TABLE].scale != 1:
        return None
    product: np.ndarray = np.ones((1, 1), "float32")
    for table in tables.values():
        product = product * keras.ops.convert_to_numpy(table.embeddings).astype("float32")
    return product
