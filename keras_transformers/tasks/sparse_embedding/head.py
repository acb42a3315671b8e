"""Sparse embedding: one weight for each token of the vocabulary, from the masked-LM head."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import ChoicesToRows, LexicalPooling, RowsToGroups
from keras_transformers.layers.dense import Activation
from keras_transformers.layers.pooling import LexicalActivation, LexicalMode
from keras_transformers.models import encoder_parts
from keras_transformers.tasks.fill_mask.head import vocabulary_projection

__all__ = ["grouped_sparse_embedder", "sparse_embedder"]


def sparse_embedder(
    encoder: keras.Model,
    *,
    pooling: LexicalMode = "max",
    weight_activation: LexicalActivation = "relu",
    activation: Activation = "gelu",
    norm_epsilon: float = 1e-12,
    name: str | None = None,
) -> keras.Model:
    """Weighs each token of the vocabulary by how well it describes the text (SPLADE).

    Formal et al. 2021, arXiv:2109.10086. The layers are those of `masked_lm`, so the weights of a
    masked-language model fit; they read all tokens, and what they predict is pooled.

    Args:
        encoder: a model with the input `padding_mask`, the output `sequence_output` and a layer
            `token_embedding`.
        pooling: "max" takes a token's largest weight over the text; "sum" adds its weights, as in
            the first SPLADE (arXiv:2107.05720).
        weight_activation: what turns a logit x into a weight: "relu" is log(1 + relu(x));
            "log1p_relu" is log(1 + log(1 + relu(x))), for fewer weights (arXiv:2504.14839).
        activation: activation of the masked-LM head's dense layer.
        norm_epsilon: added to the variance in that head's norm.
        name: the model's name; "<encoder>_sparse_embedder" by default.

    Returns:
        A functional model with the encoder's inputs and the output `sparse_embedding`
        (batch, vocabulary) in float32, 0 or above. A row that is all padding is 0.

    Raises:
        ValueError: the encoder lacks that input or output or the token embedding, or an option is
            unknown.

    Example:
        >>> import keras_transformers as kt
        >>> model = sparse_embedder(kt.bert_tiny(vocabulary_size=11))
        >>> model.output["sparse_embedding"].shape
        (None, 11)
    """
    mask = encoder_parts.padding_mask(encoder)
    projected = vocabulary_projection(
        encoder, encoder_parts.token_vectors(encoder), activation, norm_epsilon
    )
    # The bias in it is that of `masked_lm`, whose name files give it.
    pool = LexicalPooling(pooling, weight_activation, dtype="float32", name="mask_logits")
    outputs = {"sparse_embedding": pool(projected, mask)}
    return encoder_parts.model(encoder, encoder.input, outputs, name, "sparse_embedder")


def grouped_sparse_embedder(
    model: keras.Model, *, query_table: np.ndarray | None = None
) -> keras.Model:
    """Returns a model with the same layers that embeds a query and its documents, for training.

    An example is a query, a document and possibly others that do not match, so batches can be
    shuffled, divided among replicas and weighted by example.

    Args:
        model: a model from `sparse_embedder`.
        query_table: float32 (vocabulary,), the weights of tokens in queries, 0 for special tokens,
            if a table embeds queries; it is not trained.

    Returns:
        A functional model with the inputs of `model`, each (batch, group, length), and the output
        `sparse_embedding` (batch, group, vocabulary).

    Example:
        >>> import keras_transformers as kt
        >>> model = grouped_sparse_embedder(sparse_embedder(kt.bert_tiny(vocabulary_size=11)))
        >>> model.output["sparse_embedding"].shape
        (None, None, 11)
    """
    inputs = {
        name: keras.Input((None, *tensor.shape[1:]), dtype=tensor.dtype, name=name)
        for name, tensor in model.input.items()
    }
    texts = inputs if query_table is None else {name: x[:, 1:] for name, x in inputs.items()}
    rows = {name: ChoicesToRows(name=f"{name}_rows")(tensor) for name, tensor in texts.items()}
    grouped = RowsToGroups(dtype="float32", name="grouped")(
        model(rows)["sparse_embedding"], texts["token_ids"]
    )
    if query_table is not None:
        width = model.output["sparse_embedding"].shape[-1]
        table = np.pad(query_table, (0, width - len(query_table)))  # rows without a token
        queries = _Table(table, dtype="float32", name="queries")(inputs["token_ids"][:, 0])
        grouped = keras.layers.Concatenate(axis=1, dtype="float32")([queries[:, None], grouped])
    return keras.Model(inputs, {"sparse_embedding": grouped}, name=f"{model.name}_grouped")


class _Table(keras.layers.Layer):
    """Weighs the tokens that occur in a text by a fixed table.

    Args:
        table: (vocabulary,).
    """

    def __init__(self, table: np.ndarray, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._table = np.asarray(table, np.float32)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"table": self._table.tolist()}

    def call(self, token_ids: Tensor) -> Tensor:
        """Maps token ids (batch, length) to (batch, vocabulary)."""
        batch = ops.shape(token_ids)[0]
        row = ops.zeros_like(token_ids) + ops.arange(batch, dtype=token_ids.dtype)[:, None]
        places = ops.reshape(ops.stack([row, token_ids], axis=-1), (-1, 2))  # (batch * length, 2)
        ones = ops.ones_like(places[:, 0], dtype="float32")
        occurs = ops.scatter(places, ones, (batch, len(self._table))) > 0
        return ops.where(occurs, self._table, 0.0)

    def compute_output_spec(self, token_ids: Tensor) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor((token_ids.shape[0], len(self._table)), dtype="float32")
