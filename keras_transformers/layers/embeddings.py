"""Token, segment and position embeddings.

In mixed precision their matrices stay float32, and the vectors are cast after the lookup. Otherwise
a row's gradient would be summed in 16 bits: over thousands of tokens that sum stops growing, and it
is slow on GPUs.
"""

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_transformers.layers.dense import PACKAGE, at_least_float32
from keras_transformers.layers.scopes import KERNELS
from keras_transformers.layers.tensors import Initializer, Shape, Tensor

__all__ = [
    "Embedding",
    "IndexedPositionEmbedding",
    "PaddedPositionEmbedding",
    "PositionEmbedding",
    "RowEmbedding",
    "SinusoidalPositionEmbedding",
    "TokenEmbedding",
]

WeightTying = Literal["none", "decoder", "all"]


@keras.saving.register_keras_serializable(PACKAGE)
class Embedding(keras.layers.Embedding):
    """A `keras.layers.Embedding` whose gradient is summed in float32 in mixed precision too."""

    def add_weight(self, *args: Any, **options: Any) -> Any:
        """Adds a weight that `call` casts, instead of Keras."""
        return super().add_weight(*args, **({"autocast": False} | options))


@keras.saving.register_keras_serializable(PACKAGE)
class TokenEmbedding(Embedding):
    """Maps token ids to vectors, and vectors back to logits with the same matrix (weight tying).

    Args:
        vocabulary_size: number of tokens, V.
        hidden_dim: width of a vector, H.
        scale: factor applied to the vectors; the Transformer uses sqrt(hidden_dim), BERT 1.
        embeddings_initializer: initializer of the (V, H) matrix.

    Raises:
        ValueError: `vocabulary_size` is below 1.

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
        embeddings_initializer: Initializer = "uniform",
        **kwargs: Any,
    ) -> None:
        if vocabulary_size < 1:
            raise ValueError(f"vocabulary_size={vocabulary_size}: expected the number of tokens")
        super().__init__(
            vocabulary_size, hidden_dim, embeddings_initializer=embeddings_initializer, **kwargs
        )
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.scale = scale

    def call(self, inputs: Tensor, *, reverse: bool = False) -> Tensor:
        """Embeds ids, or projects vectors to logits.

        Ids inside a graph are not checked: a check would slow down training and serving, where ids
        come from a tokenizer or data set with this vocabulary.

        Args:
            inputs: token ids (batch, length); with `reverse`, vectors (..., hidden_dim).
            reverse: project to the vocabulary with the transposed matrix.

        Returns:
            Vectors (batch, length, hidden_dim); with `reverse`, logits (..., vocabulary_size) in
            float32 or wider.

        Raises:
            ValueError: outside a graph, an id is not in the vocabulary.
        """
        kernel = KERNELS.of(self)
        if kernel is not None:
            return kernel(inputs, reverse=reverse)
        if not reverse:
            check_token_ids(inputs, self.vocabulary_size, "token_ids")
            outputs = super().call(inputs)
            return outputs if self.scale == 1.0 else outputs * self.scale
        rows = ops.cast(ops.reshape(inputs, (-1, self.hidden_dim)), self.compute_dtype)
        matrix = ops.cast(self.embeddings, self.compute_dtype)
        logits = ops.matmul(rows, ops.transpose(matrix))  # (rows, vocabulary)
        logits = ops.reshape(logits, (*ops.shape(inputs)[:-1], self.vocabulary_size))
        return ops.cast(logits, at_least_float32(self.compute_dtype))

    def compute_output_spec(self, inputs: Tensor, *, reverse: bool = False) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        if reverse:
            shape = (*inputs.shape[:-1], self.vocabulary_size)
            return keras.KerasTensor(shape, dtype=at_least_float32(self.compute_dtype))
        return keras.KerasTensor((*inputs.shape, self.hidden_dim), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = super().get_config()
        del config["input_dim"], config["output_dim"]
        return config | {
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
            "scale": self.scale,
        }


def check_token_ids(token_ids: Tensor, vocabulary_size: int, name: str) -> None:
    """Raises ValueError if an id is outside the vocabulary; values inside a graph are not checked.

    An embedding maps id -1 to its last row, and on some devices any large id too.
    """
    values = known_values(token_ids)
    if values is None:
        return
    wrong = values[(values < 0) | (values >= vocabulary_size)]
    if wrong.size:
        raise ValueError(
            f"{name} has {wrong[0]}: the vocabulary has ids 0 to {vocabulary_size - 1}"
        )


def known_values(tensor: Tensor) -> np.ndarray | None:
    """Returns a tensor's values; None inside a graph, where it has none yet."""
    try:
        return ops.convert_to_numpy(tensor)
    except (NotImplementedError, TypeError, ValueError):  # raised by TensorFlow, JAX or Keras
        return None


def token_embeddings(
    weight_tying: WeightTying,
    source_size: int,
    target_size: int,
    hidden_dim: int,
    *,
    is_scaled: bool = True,
) -> tuple[TokenEmbedding, TokenEmbedding]:
    """Makes the source and target embeddings of an encoder-decoder.

    Args:
        weight_tying: "all" makes one layer, "token_embedding", for both. "none" and "decoder" make
            "source_token_embedding" and "target_token_embedding"; with "decoder" the caller also
            computes the logits with the second.
        source_size: number of source tokens.
        target_size: number of target tokens.
        hidden_dim: width of a vector.
        is_scaled: whether the vectors are multiplied by sqrt(hidden_dim).

    Raises:
        ValueError: an unknown choice, or "all" with vocabularies of different sizes.
    """
    if weight_tying not in ("none", "decoder", "all"):
        raise ValueError(
            f"weight_tying={weight_tying!r} is unknown: use 'all', 'decoder' or 'none'"
        )
    if weight_tying == "all" and source_size != target_size:
        raise ValueError(
            f"weight_tying='all' shares one matrix, but the vocabularies have {source_size} and "
            f"{target_size} tokens; train one vocabulary for both, or use 'decoder'"
        )

    def make(size: int, name: str) -> TokenEmbedding:
        return TokenEmbedding(
            size,
            hidden_dim,
            # With the scale sqrt(d), vectors and tied logits start with unit variance.
            scale=hidden_dim**0.5 if is_scaled else 1.0,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=hidden_dim**-0.5),
            name=name,
        )

    if weight_tying == "all":
        shared = make(source_size, "token_embedding")
        return shared, shared
    return make(source_size, "source_token_embedding"), make(target_size, "target_token_embedding")


@keras.saving.register_keras_serializable(PACKAGE)
class RowEmbedding(keras.layers.Embedding):
    """A `keras.layers.Embedding` for millions of rows: a step touches only the rows it looks up.

    On TensorFlow, Keras looks up rows in the value of the whole matrix. If an optimizer updates
    single rows in place, TensorFlow copies the matrix each time that value is read. This layer
    reads rows from the variable itself, so nothing is copied. The gradient has one slice per id
    (`tf.IndexedSlices`), and `keras.optimizers.SGD` without momentum updates only those rows.
    Optimizers with moments, and all optimizers on other backends, update the whole matrix.
    """

    def call(self, inputs: Tensor) -> Tensor:
        """Maps ids (...) to vectors (..., output_dim)."""
        matrix = self.embeddings.value
        if hasattr(matrix, "sparse_read"):  # a TensorFlow variable; a tensor if cast or traced
            return matrix.sparse_read(inputs)
        return ops.take(matrix, inputs, axis=0)


@keras.saving.register_keras_serializable(PACKAGE)
class PositionEmbedding(keras.layers.Layer):
    """Adds a learned position embedding to each vector (BERT, GPT, ViT, RoBERTa).

    Args:
        max_sequence_length: number of positions, P (Hugging Face: max_position_embeddings, which
            also counts the rows before `first_position`).
        first_position: row of the matrix for the first vector of a sequence; 2 in RoBERTa.
        embeddings_initializer: initializer of the (first_position + P, H) matrix.

    Example:
        >>> layer = PositionEmbedding(512, first_position=2)
        >>> layer(keras.ops.ones((1, 512, 8))).shape, layer.count_params() == (2 + 512) * 8
        (TensorShape([1, 512, 8]), True)
    """

    def __init__(
        self,
        max_sequence_length: int,
        *,
        first_position: int = 0,
        embeddings_initializer: Initializer = "uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_sequence_length = max_sequence_length
        self.first_position = first_position
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, input_shape: Shape) -> None:
        """Creates the matrix, as wide as the inputs."""
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.first_position + self.max_sequence_length, input_shape[-1]),
            initializer=self.embeddings_initializer,
            autocast=False,
        )

    def call(
        self, inputs: Tensor, *, positions: Tensor | None = None, start_index: Tensor = 0
    ) -> Tensor:
        """Adds the positions' vectors.

        Args:
            inputs: vectors (batch, length, hidden).
            positions: int32 (batch, length), each below `max_sequence_length`; by default they
                count up from `start_index`.
            start_index: position of the first vector, counted from 0, for step-by-step decoding.

        Returns:
            (batch, length, hidden).

        Raises:
            ValueError: without `positions`, the sequence is longer than `max_sequence_length`.
        """
        embeddings = ops.convert_to_tensor(self.embeddings)
        if positions is None:
            vectors = _rows(embeddings, start_index + self.first_position, inputs, self)
        else:
            vectors = ops.take(embeddings, positions + self.first_position, axis=0)
        return inputs + ops.cast(vectors, inputs.dtype)

    def compute_output_spec(self, inputs: Tensor, *others: Tensor, **options: Any) -> Tensor:
        """Returns the inputs' shape, with the layer's dtype."""
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "max_sequence_length": self.max_sequence_length,
            "first_position": self.first_position,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }


@keras.saving.register_keras_serializable(PACKAGE)
class IndexedPositionEmbedding(PositionEmbedding):
    """The `PositionEmbedding` of BERT and GPT, under its name in their files."""


@keras.saving.register_keras_serializable(PACKAGE)
class PaddedPositionEmbedding(PositionEmbedding):
    """A `PositionEmbedding` that counts only real tokens, so padding may be on either side.

    Used by RoBERTa, MPNet and other families from fairseq.
    """

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        *,
        positions: Tensor | None = None,
        start_index: Tensor = 0,
    ) -> Tensor:
        """Adds the positions' vectors.

        Args:
            inputs: vectors (batch, length, hidden).
            padding_mask: bool (batch, length), True at real tokens; by default all are real.
            positions: see `PositionEmbedding.call`; used instead of the mask.
            start_index: position of the first vector if there is no mask, counted from 0.

        Returns:
            (batch, length, hidden). Padding gets the vector of an arbitrary position.

        Raises:
            ValueError: the sequence is longer than `max_sequence_length`.
        """
        if padding_mask is None or positions is not None:
            return super().call(inputs, positions=positions, start_index=start_index)
        embeddings = ops.convert_to_tensor(self.embeddings)
        rows = _rows(embeddings, self.first_position, inputs, self)  # (length, hidden)
        # In float32, because TensorFlow does not sum integers on a GPU.
        counts = ops.cumsum(ops.cast(padding_mask, "float32"), axis=1)
        positions = ops.maximum(ops.cast(counts, "int32") - 1, 0)  # (batch, length)
        return inputs + ops.cast(ops.take(rows, positions, axis=0), inputs.dtype)


@keras.saving.register_keras_serializable(PACKAGE)
class SinusoidalPositionEmbedding(keras.layers.Layer):
    """Adds the Transformer's fixed position encodings: sines and cosines.

    The wavelengths run from 2 pi to 10000 * 2 pi. "Attention Is All You Need", section 3.5.

    Args:
        max_sequence_length: number of positions.
        interleaved: whether each cosine follows its sine (the paper), or all cosines follow all
            sines (Marian).
        first_position: the number of the first vector's position: 0, or 1 in OpenNMT-tf.
        endpoint: whether the longest wavelength is 10000 * 2 pi itself, as in tensor2tensor and
            OpenNMT-tf, or the last one before it (the paper).
    """

    def __init__(
        self,
        max_sequence_length: int,
        *,
        interleaved: bool = True,
        first_position: int = 0,
        endpoint: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_sequence_length = max_sequence_length
        self.interleaved = interleaved
        self.first_position = first_position
        self.endpoint = endpoint

    def build(self, input_shape: Shape) -> None:
        """Computes the table in float64, so that it is exact in float32."""
        self._table = sinusoids(
            self.first_position + self.max_sequence_length,
            input_shape[-1],
            interleaved=self.interleaved,
            endpoint=self.endpoint,
        )[self.first_position :]

    def call(
        self, inputs: Tensor, *, positions: Tensor | None = None, start_index: Tensor = 0
    ) -> Tensor:
        """Adds the positions from `start_index` on to vectors (batch, length, hidden).

        Or, as in `PositionEmbedding.call`, those of `positions`.

        Raises:
            ValueError: without `positions`, the sequence is longer than `max_sequence_length`.
        """
        table = ops.convert_to_tensor(self._table, dtype=self.compute_dtype)
        if positions is not None:
            return inputs + ops.take(table, positions, axis=0)
        return inputs + _rows(table, start_index, inputs, self)

    def compute_output_spec(self, inputs: Tensor, **options: Any) -> Tensor:
        """Returns the inputs' shape, with the layer's dtype."""
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "max_sequence_length": self.max_sequence_length,
            "interleaved": self.interleaved,
            "first_position": self.first_position,
            "endpoint": self.endpoint,
        }


def sinusoids(
    num_positions: int, hidden_dim: int, *, interleaved: bool, endpoint: bool = False
) -> np.ndarray:
    """Computes the Transformer's position encodings, float32 (positions, hidden).

    See `SinusoidalPositionEmbedding` for the options.

    Raises:
        ValueError: `hidden_dim` is odd.
    """
    if hidden_dim % 2:
        raise ValueError(f"hidden width {hidden_dim} is odd: sines and cosines come in pairs")
    positions = np.arange(num_positions)[:, None]
    pairs = hidden_dim // 2
    rates = np.power(10000.0, -np.arange(pairs) / max(pairs - endpoint, 1))
    waves = np.stack([np.sin(positions * rates), np.cos(positions * rates)])
    axes = (1, 2, 0) if interleaved else (1, 0, 2)
    return waves.transpose(axes).reshape(num_positions, hidden_dim).astype("float32")


def _rows(
    table: Tensor,
    start: Tensor,
    inputs: Tensor,
    layer: PositionEmbedding | SinusoidalPositionEmbedding,
) -> Tensor:
    """Returns the table's rows from `start` on, one per position of `inputs`: (length, hidden).

    This checks a length that is known when the graph is built; otherwise the slice fails at run
    time.
    """
    length = inputs.shape[1]
    if isinstance(length, int) and length > layer.max_sequence_length:
        raise ValueError(
            f"sequence length {length} is beyond the {layer.max_sequence_length} positions of "
            f"layer {layer.name!r}: shorten the inputs or build the model with a larger "
            "max_sequence_length"
        )
    return ops.slice(table, (start, 0), (ops.shape(inputs)[1], inputs.shape[-1]))
