"""Token and position embeddings. A segment embedding is a plain `keras.layers.Embedding`."""

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_transformers.layers.dense import PACKAGE

__all__ = ["PositionEmbedding", "SinusoidalPositionEmbedding", "TokenEmbedding"]

WeightTying = Literal["none", "decoder", "all"]


@keras.saving.register_keras_serializable(PACKAGE)
class TokenEmbedding(keras.layers.Embedding):
    """Token ids to vectors, and back to logits with the same matrix (weight tying).

    Args:
        vocabulary_size: number of tokens, V.
        hidden_dim: width of a vector, H.
        scale: factor on the vectors; the Transformer takes sqrt(hidden_dim), BERT 1.
        embeddings_initializer: of the (V, H) matrix.

    Raises:
        ValueError: there is less than one token.

    Example:
        >>> embedding = TokenEmbedding(vocabulary_size=10, hidden_dim=4)
        >>> hidden = embedding(keras.ops.array([[1, 2, 3]]))
        >>> hidden.shape, embedding(hidden, reverse=True).shape
        (TensorShape([1, 3, 4]), TensorShape([1, 3, 10]))
    """

    def __init__(
        self,
        vocabulary_size: int,
        hidden_dim: int,
        *,
        scale: float = 1.0,
        embeddings_initializer: Any = "uniform",
        **kwargs: Any,
    ) -> None:
        if vocabulary_size < 1:
            raise ValueError(f"vocabulary_size={vocabulary_size}: give the number of tokens")
        super().__init__(
            vocabulary_size, hidden_dim, embeddings_initializer=embeddings_initializer, **kwargs
        )
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.scale = scale

    def call(self, inputs: Any, *, reverse: bool = False) -> Any:
        """Embeds ids, or projects vectors to logits.

        Args:
            inputs: token ids (batch, length), or with `reverse` vectors (..., hidden_dim).
            reverse: project to the vocabulary with the transposed matrix.

        Returns:
            (batch, length, hidden_dim); with `reverse` (..., vocabulary_size) logits in float32.
        """
        if not reverse:
            outputs = super().call(inputs)
            return outputs if self.scale == 1.0 else outputs * self.scale
        rows = ops.reshape(inputs, (-1, self.hidden_dim))  # (rows, hidden)
        logits = ops.matmul(rows, ops.transpose(self.embeddings))  # (rows, vocabulary)
        logits = ops.reshape(logits, (*ops.shape(inputs)[:-1], self.vocabulary_size))
        return ops.cast(logits, "float32")

    def compute_output_spec(self, inputs: Any, *, reverse: bool = False) -> Any:
        """Shape and dtype of `call`'s result."""
        if reverse:
            return keras.KerasTensor((*inputs.shape[:-1], self.vocabulary_size), dtype="float32")
        return keras.KerasTensor((*inputs.shape, self.hidden_dim), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        config = super().get_config()
        del config["input_dim"], config["output_dim"]
        return config | {
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
            "scale": self.scale,
        }


def token_embeddings(
    weight_tying: WeightTying, source_size: int, target_size: int, hidden_dim: int
) -> tuple[TokenEmbedding, TokenEmbedding]:
    """The embeddings of an encoder-decoder's sources and targets, named for the layers they are.

    Args:
        weight_tying: "all" makes them the same object, "token_embedding"; else they are
            "source_token_embedding" and "target_token_embedding", of which with "decoder" the
            second projects to the logits too.
        source_size: number of source tokens.
        target_size: number of target tokens.
        hidden_dim: width of a vector.

    Raises:
        ValueError: an unknown choice, or "all" for two vocabularies of different sizes.
    """
    if weight_tying not in ("none", "decoder", "all"):
        raise ValueError(
            f"weight_tying={weight_tying!r} is unknown: take 'all', 'decoder' or 'none'"
        )
    if weight_tying == "all" and source_size != target_size:
        raise ValueError(
            f"weight_tying='all' shares one matrix, but the vocabularies have {source_size} and "
            f"{target_size} tokens; train one vocabulary for both, or take 'decoder'"
        )

    def make(size: int, name: str) -> TokenEmbedding:
        return TokenEmbedding(
            size,
            hidden_dim,
            # Scaled by sqrt(d) the vectors have unit variance, and tied logits do at the start.
            scale=hidden_dim**0.5,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=hidden_dim**-0.5),
            name=name,
        )

    if weight_tying == "all":
        shared = make(source_size, "token_embedding")
        return shared, shared
    return make(source_size, "source_token_embedding"), make(target_size, "target_token_embedding")


@keras.saving.register_keras_serializable(PACKAGE)
class PositionEmbedding(keras.layers.Layer):
    """Adds a learned vector of its position to every vector (BERT, GPT, ViT).

    Args:
        max_sequence_length: number of positions, P (Hugging Face: max_position_embeddings).
        embeddings_initializer: of the (P, H) matrix.
    """

    def __init__(
        self,
        max_sequence_length: int,
        *,
        embeddings_initializer: Any = "uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_sequence_length = max_sequence_length
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, input_shape: Any) -> None:
        """Makes the matrix, as wide as the vectors it is added to."""
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.max_sequence_length, input_shape[-1]),
            initializer=self.embeddings_initializer,
        )

    def call(self, inputs: Any, *, start_index: Any = 0) -> Any:
        """Adds the positions' vectors.

        Args:
            inputs: vectors (batch, length, hidden).
            start_index: position of the first of them, for decoding step by step.

        Returns:
            (batch, length, hidden).

        Raises:
            ValueError: the length is beyond `max_sequence_length`.
        """
        embeddings = ops.convert_to_tensor(self.embeddings)
        return inputs + _rows(embeddings, start_index, inputs, self)

    def compute_output_spec(self, inputs: Any, *, start_index: Any = 0) -> Any:
        """The inputs' shape, in the layer's dtype."""
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().get_config() | {
            "max_sequence_length": self.max_sequence_length,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }


@keras.saving.register_keras_serializable(PACKAGE)
class SinusoidalPositionEmbedding(keras.layers.Layer):
    """Adds the paper's fixed positions: sines and cosines, interleaved.

    Their wavelengths run from 2 pi to 10000 * 2 pi. "Attention Is All You Need",
    section 3.5. No parameters.

    Args:
        max_sequence_length: the longest length that may come.
    """

    def __init__(self, max_sequence_length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_sequence_length = max_sequence_length

    def build(self, input_shape: Any) -> None:
        """Computes the table in float64, to be exact in float32."""
        hidden_dim = input_shape[-1]
        if hidden_dim % 2:
            raise ValueError(f"hidden width {hidden_dim} is odd: sines and cosines come in pairs")
        positions = np.arange(self.max_sequence_length)[:, None]
        rates = np.power(10000.0, -np.arange(0, hidden_dim, 2) / hidden_dim)
        table = np.empty((self.max_sequence_length, hidden_dim))
        table[:, 0::2] = np.sin(positions * rates)
        table[:, 1::2] = np.cos(positions * rates)
        self._table = table.astype("float32")  # (positions, hidden)

    def call(self, inputs: Any, *, start_index: Any = 0) -> Any:
        """Adds the vectors of positions from `start_index` on to (batch, length, hidden).

        Raises:
            ValueError: the length is beyond `max_sequence_length`.
        """
        table = ops.convert_to_tensor(self._table, dtype=self.compute_dtype)
        return inputs + _rows(table, start_index, inputs, self)

    def compute_output_spec(self, inputs: Any, *, start_index: Any = 0) -> Any:
        """The inputs' shape, in the layer's dtype."""
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().get_config() | {"max_sequence_length": self.max_sequence_length}


def _rows(
    table: Any, start: Any, inputs: Any, layer: PositionEmbedding | SinusoidalPositionEmbedding
) -> Any:
    """Rows of the positions that `inputs` (batch, length, hidden) fills: (length, hidden).

    Where the length is known before the graph runs it is held to the table's; in a graph with a
    length known only at run time the slice fails instead.
    """
    length = inputs.shape[1]
    if isinstance(length, int) and length > layer.max_sequence_length:
        raise ValueError(
            f"sequence length {length} is beyond the {layer.max_sequence_length} positions of "
            f"layer {layer.name!r}; trim the inputs or give the model more positions "
            "(max_sequence_length)"
        )
    return ops.slice(table, (start, 0), (ops.shape(inputs)[1], inputs.shape[-1]))
