"""Layers that turn many vectors into fewer: pooling, gathering positions and mixing layers.

Also one that scatters tokens back to such positions.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import keras
import numpy as np
from keras import ops

from keras_transformers.layers.dense import PACKAGE, AddBias, softmax
from keras_transformers.layers.layouts import PADDED
from keras_transformers.layers.scopes import SELECTIONS
from keras_transformers.layers.tensors import Shape, Tensor

__all__ = [
    "EndTokenPooler",
    "FirstDimensions",
    "FirstTokenPooler",
    "GatherPositions",
    "LastToken",
    "LexicalPooling",
    "MeanOfTokens",
    "MeanOfWords",
    "SampleTokens",
    "ScalarMix",
    "ShiftRight",
    "TokenPooling",
    "WithoutMarkers",
]


@keras.saving.register_keras_serializable(PACKAGE)
class FirstTokenPooler(keras.layers.Dense):
    """BERT's pooler: a `keras.layers.Dense` on the first position, [CLS]."""

    def call(
        self, inputs: Tensor, positions: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        """Maps (batch, length, features) to (batch, units).

        With `positions`, int32 (batch, n), it reads those instead of the first: (batch, n, units).
        """
        first = inputs[:, 0] if positions is None else PADDED.at(inputs, positions)
        return super().call(first, training=training)

    def compute_output_shape(
        self, inputs_shape: Shape, positions_shape: Shape | None = None
    ) -> Shape:
        """Returns (batch, units), or (batch, n, units) with positions."""
        return (*(inputs_shape[:1] if positions_shape is None else positions_shape), self.units)


@keras.saving.register_keras_serializable(PACKAGE)
class EndTokenPooler(keras.layers.Dense):
    """BART's pooler: a `keras.layers.Dense` on the vector at each text's last end token.

    Args:
        units: width of the result.
        end_token_id: id of the end token. A pair of texts has several; the last one counts.
        **options: those of `keras.layers.Dense`.

    Example:
        >>> pooler = EndTokenPooler(4, end_token_id=2, activation="tanh")
        >>> token_ids = keras.ops.array([[0, 7, 2, 1]])
        >>> pooler(keras.ops.ones((1, 4, 8)), token_ids, token_ids != 1).shape
        TensorShape([1, 4])
    """

    def __init__(self, units: int, *, end_token_id: int, **options: Any) -> None:
        super().__init__(units, **options)
        self.end_token_id = end_token_id

    def build(self, inputs_shape: Shape, token_ids_shape: Shape, padding_mask_shape: Shape) -> None:
        """Creates the weights."""
        super().build(inputs_shape)

    def call(
        self,
        inputs: Tensor,
        token_ids: Tensor,
        padding_mask: Tensor,
        training: bool | None = None,
    ) -> Tensor:
        """Maps vectors (batch, length, features) to (batch, units).

        Args:
            inputs: (batch, length, features).
            token_ids: the texts, int32 (batch, length).
            padding_mask: bool (batch, length), True where a token is real.
            training: whether in training.

        Returns:
            (batch, units). A row without an end token is pooled at its first position.
        """
        is_end = ops.logical_and(ops.equal(token_ids, self.end_token_id), padding_mask)
        return super().call(last_real(inputs, is_end), training=training)

    def compute_output_spec(
        self,
        inputs: Tensor,
        token_ids: Tensor,
        padding_mask: Tensor,
        training: bool | None = None,
    ) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor((inputs.shape[0], self.units), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"end_token_id": self.end_token_id}


@keras.saving.register_keras_serializable(PACKAGE)
class ShiftRight(keras.layers.Layer):
    """Moves tokens one position to the right, as a decoder reads the text that it writes.

    Args:
        start_token_id: the token before the text. By default it is the row's last token, which in
            mBART is the text's language.

    Example:
        >>> token_ids = keras.ops.array([[5, 6, 2, 1], [7, 8, 9, 2]])
        >>> ShiftRight(0)(token_ids, token_ids != 1).numpy()
        array([[0, 5, 6, 2],
               [0, 7, 8, 9]], dtype=int32)
    """

    def __init__(self, start_token_id: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_token_id = start_token_id

    def call(self, token_ids: Tensor, padding_mask: Tensor) -> Tensor:
        """Maps int32 (batch, length) and a mask (batch, length) to int32 (batch, length)."""
        if self.start_token_id is None:
            first = last_real(token_ids[:, :, None], padding_mask)  # (batch, 1)
        else:
            first = ops.full_like(token_ids[:, :1], self.start_token_id)
        return ops.concatenate([first, token_ids[:, :-1]], axis=1)

    def compute_output_spec(self, token_ids: Tensor, padding_mask: Tensor) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor(token_ids.shape, dtype=token_ids.dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"start_token_id": self.start_token_id}


@keras.saving.register_keras_serializable(PACKAGE)
class LastToken(keras.layers.Layer):
    """Selects the vector of each row's last real token, which has seen all the others."""

    def call(self, inputs: Tensor, padding_mask: Tensor) -> Tensor:
        """Maps vectors (batch, length, hidden) and a mask (batch, length) to (batch, hidden).

        A row that is all padding returns its first vector.
        """
        return last_real(inputs, padding_mask)

    def compute_output_spec(self, inputs: Tensor, padding_mask: Tensor) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor((inputs.shape[0], inputs.shape[2]), dtype=inputs.dtype)


@keras.saving.register_keras_serializable(PACKAGE)
class GatherPositions(keras.layers.Layer):
    """Selects the vectors at given positions of each sequence."""

    def call(self, inputs: Tensor, positions: Tensor) -> Tensor:
        """Maps vectors (batch, length, hidden) and positions (batch, n) to (batch, n, hidden)."""
        selection = SELECTIONS.of(self)
        if selection is not None:  # a block has computed these alone
            return inputs[:, int(selection.first) :]
        return PADDED.at(inputs, positions)

    def compute_output_shape(self, inputs_shape: Shape, positions_shape: Shape) -> Shape:
        """Returns (batch, n, hidden)."""
        return (*positions_shape, inputs_shape[-1])


@keras.saving.register_keras_serializable(PACKAGE)
class SampleTokens(keras.layers.Layer):
    """Draws a token for each given position of a text and puts it there (ELECTRA).

    No gradient flows through it. In training the draws change from call to call; in evaluation they
    depend only on the logits, so that evaluations can be compared.

    Args:
        seed: seed of the draws in training.

    Example:
        >>> logits = keras.ops.array([[[0.0, 0.0, 0.0, 99.0], [99.0, 0.0, 0.0, 0.0]]])
        >>> layer = SampleTokens(seed=0)
        >>> layer(keras.ops.array([[1, 2, 2]]), keras.ops.array([[2, 0]]), logits).numpy()
        array([[1, 2, 3]], dtype=int32)
    """

    def __init__(self, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def call(
        self, token_ids: Tensor, positions: Tensor, logits: Tensor, training: bool | None = None
    ) -> Tensor:
        """Replaces tokens.

        Args:
            token_ids: int32 (batch, length).
            positions: int32 (batch, n); 0, where [CLS] is, stands for no position.
            logits: (batch, n, vocabulary).
            training: whether the draws change from call to call.

        Returns:
            int32 (batch, length).
        """
        rows = ops.reshape(ops.stop_gradient(logits), (-1, logits.shape[-1]))  # (batch * n, vocab.)
        seed = self.seed_generator if training else 0
        drawn = keras.random.categorical(rows, 1, dtype="int32", seed=seed)
        drawn = ops.reshape(drawn, ops.shape(positions))
        drawn = ops.where(positions > 0, drawn, token_ids[:, :1])  # (batch, n)
        row = (
            ops.zeros_like(positions) + ops.arange(ops.shape(positions)[0], dtype="int32")[:, None]
        )
        places = ops.reshape(ops.stack([row, positions], axis=-1), (-1, 2))  # (batch * n, 2)
        return ops.scatter_update(token_ids, places, ops.reshape(drawn, (-1,)))

    def compute_output_spec(
        self, token_ids: Tensor, positions: Tensor, logits: Tensor, training: bool | None = None
    ) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor(token_ids.shape, dtype="int32")

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"seed": self.seed}


@keras.saving.register_keras_serializable(PACKAGE)
class MeanOfTokens(keras.layers.Layer):
    """Averages the vectors of the real tokens; returns zeros if there are none."""

    def call(self, vectors: Tensor, padding_mask: Tensor) -> Tensor:
        """Maps (batch, length, width) and a mask (batch, length) to (batch, width)."""
        is_real = ops.cast(padding_mask, "float32")
        shares = is_real / ops.maximum(ops.sum(is_real, axis=1, keepdims=True), 1.0)
        shares = ops.cast(shares, vectors.dtype)  # not earlier, because bfloat16 counts only to 256
        return ops.squeeze(ops.matmul(shares[:, None], vectors), axis=1)


@keras.saving.register_keras_serializable(PACKAGE)
class TokenPooling(keras.layers.Layer):
    """Pools a text's token vectors into one vector, in one or more modes.

    The modes, their names and their order are those of sentence-transformers' `Pooling`. The
    vectors of several modes are concatenated.

    Args:
        modes: one or more of "cls", the first token's vector; "max", the largest value of each
            dimension; "mean", the mean; "mean_sqrt_len_tokens", the sum divided by the square root
            of the number of tokens; "weightedmean", the mean with weights 1, 2, 3 and so on; and
            "lasttoken", the last token's vector. All except "cls" need a padding mask.

    Raises:
        ValueError: no mode, an unknown mode, or a mode that occurs twice.

    Example:
        >>> vectors = keras.ops.array([[[1.0], [3.0], [9.0]]])
        >>> mask = keras.ops.array([[True, True, False]])
        >>> TokenPooling(["mean", "max"])(vectors, mask).numpy()
        array([[2., 3.]], dtype=float32)
    """

    MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")

    def __init__(self, modes: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.modes = (modes,) if isinstance(modes, str) else tuple(modes)
        unknown = [mode for mode in self.modes if mode not in self.MODES]
        if unknown or not self.modes or len(set(self.modes)) != len(self.modes):
            raise ValueError(f"modes={modes!r}: use one or more of {', '.join(self.MODES)}")

    def call(self, vectors: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Maps vectors (batch, length, hidden) and a mask to (batch, modes * hidden).

        Args:
            vectors: (batch, length, hidden).
            padding_mask: bool (batch, length), True where a token is real. The mean of a row that
                is all padding is zeros.
        """
        pooled = [getattr(self, f"_{mode}")(vectors, padding_mask) for mode in self.modes]
        return pooled[0] if len(pooled) == 1 else ops.concatenate(pooled, axis=-1)

    def compute_output_spec(self, vectors: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        width = len(self.modes) * vectors.shape[-1]
        return keras.KerasTensor((vectors.shape[0], width), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"modes": list(self.modes)}

    def _cls(self, vectors: Tensor, mask: Tensor) -> Tensor:
        return vectors[:, 0]

    def _max(self, vectors: Tensor, mask: Tensor) -> Tensor:
        lowest = ops.cast(-np.inf, vectors.dtype)
        return ops.max(ops.where(mask[:, :, None], vectors, lowest), axis=1, initial=-np.inf)

    def _mean(self, vectors: Tensor, mask: Tensor) -> Tensor:
        return _weighted_sum(vectors, mask) / _count(mask, vectors.dtype)

    def _mean_sqrt_len_tokens(self, vectors: Tensor, mask: Tensor) -> Tensor:
        return _weighted_sum(vectors, mask) / ops.sqrt(_count(mask, vectors.dtype))

    def _weightedmean(self, vectors: Tensor, mask: Tensor) -> Tensor:
        places = ops.arange(1, ops.shape(vectors)[1] + 1, dtype=vectors.dtype)
        weights = ops.cast(mask, vectors.dtype) * places[None]
        return _weighted_sum(vectors, weights) / _count(weights, vectors.dtype)

    def _lasttoken(self, vectors: Tensor, mask: Tensor) -> Tensor:
        return last_real(vectors, mask)


LexicalMode = Literal["max", "sum"]
LexicalActivation = Literal["relu", "log1p_relu"]


@keras.saving.register_keras_serializable(PACKAGE)
class LexicalPooling(AddBias):
    """Pools the logits of a text's tokens into one weight for each token of the vocabulary.

    SPLADE: Formal et al. 2021, arXiv:2107.05720 and arXiv:2109.10086. It also adds the bias of the
    masked-LM head, whose projection its input is. The names of the options' values are those of
    sentence-transformers' `SpladePooling`.

    Args:
        mode: "max" takes a token's largest weight over the text, "sum" adds its weights.
        activation: what turns a logit x into a weight: "relu" is log(1 + relu(x)); "log1p_relu" is
            log(1 + log(1 + relu(x))), arXiv:2504.14839.

    Raises:
        ValueError: an option is unknown.

    Example:
        >>> logits = keras.ops.array([[[1.0, -1.0], [3.0, 0.5], [9.0, 9.0]]])
        >>> mask = keras.ops.array([[True, True, False]])
        >>> LexicalPooling()(logits, mask).numpy().round(4)  # log(4) and log(1.5)
        array([[1.3863, 0.4055]], dtype=float32)
    """

    def __init__(
        self, mode: LexicalMode = "max", activation: LexicalActivation = "relu", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        for name, value, kind in (
            ("mode", mode, LexicalMode),
            ("activation", activation, LexicalActivation),
        ):
            if value not in get_args(kind):
                raise ValueError(f"{name}={value!r}: use {' or '.join(map(repr, get_args(kind)))}")
        self.mode, self.activation = mode, activation

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Maps logits (batch, length, vocabulary) and a mask (batch, length) to weights.

        Args:
            inputs: the logits, without the bias.
            padding_mask: bool (batch, length), True where a token is real; by default all are. The
                weights of a row that is all padding are 0.

        Returns:
            (batch, vocabulary), 0 or above.
        """
        if self.mode == "max":
            # The weight grows with the logit, so the largest logit has the largest weight: all that
            # follows is done once per text and not once per token.
            if padding_mask is not None:
                lowest = ops.cast(-np.inf, inputs.dtype)
                inputs = ops.where(padding_mask[:, :, None], inputs, lowest)
            return self._weights(super().call(ops.max(inputs, axis=1, initial=-np.inf)))
        weights = self._weights(super().call(inputs))
        if padding_mask is None:
            return ops.sum(weights, axis=1)
        is_real = ops.cast(padding_mask, weights.dtype)[:, None]  # (batch, 1, length)
        return ops.squeeze(ops.matmul(is_real, weights), axis=1)

    def compute_output_spec(self, inputs: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor((inputs.shape[0], inputs.shape[-1]), dtype=self.compute_dtype)

    def build(self, inputs_shape: Shape, padding_mask_shape: Shape | None = None) -> None:
        """Creates the bias, initially zero."""
        super().build(inputs_shape)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"mode": self.mode, "activation": self.activation}

    def _weights(self, logits: Tensor) -> Tensor:
        weights = ops.log1p(ops.relu(logits))
        return ops.log1p(weights) if self.activation == "log1p_relu" else weights


@keras.saving.register_keras_serializable(PACKAGE)
class FirstDimensions(keras.layers.Layer):
    """Keeps the leading dimensions of a vector.

    Kusupati et al. 2022, "Matryoshka Representation Learning", arXiv:2205.13147.

    Args:
        size: how many dimensions to keep.
    """

    def __init__(self, size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.size = size

    def call(self, vectors: Tensor) -> Tensor:
        """Maps (batch, width) to (batch, size)."""
        return vectors[:, : self.size]

    def compute_output_shape(self, shape: Shape) -> Shape:
        """Returns (batch, size)."""
        return (*shape[:-1], min(self.size, shape[-1]))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"size": self.size}


@keras.saving.register_keras_serializable(PACKAGE)
class ScalarMix(keras.layers.Layer):
    """Computes ELMo's weighted sum of layers: `gamma * sum_j softmax(w)_j * layer_j`.

    w and gamma are trained with the task. At first all layers have the same weight and gamma is 1.
    Peters et al. 2018, equation 1.

    Example:
        >>> ScalarMix()(keras.ops.ones((2, 5, 3, 8))).shape
        TensorShape([2, 5, 8])
    """

    def build(self, input_shape: Shape) -> None:
        """Creates one weight per layer, and gamma; mixed precision does not round them."""
        self.weights_before_softmax = self.add_weight(
            name="weights_before_softmax",
            shape=(input_shape[-2],),
            initializer="zeros",
            autocast=False,
        )
        self.gamma = self.add_weight(name="gamma", shape=(), initializer="ones", autocast=False)

    def call(self, layer_outputs: Tensor) -> Tensor:
        """Maps (batch, tokens, layers, width) to (batch, tokens, width)."""
        shares = softmax(ops.convert_to_tensor(self.weights_before_softmax))
        factors = ops.cast(shares * self.gamma, layer_outputs.dtype)  # (layers,)
        return ops.sum(layer_outputs * factors[:, None], axis=-2)


@keras.saving.register_keras_serializable(PACKAGE)
class WithoutMarkers(keras.layers.Layer):
    """Drops ELMo's start and end markers, and sets everything after the last word to 0."""

    def call(self, hidden: Tensor, padding_mask: Tensor) -> Tensor:
        """Maps (batch, words + 2, width) and its mask to (batch, words, width)."""
        # Word i is at position i + 1. It is not the end marker if position i + 2 is real too.
        return ops.where(padding_mask[:, 2:, None], hidden[:, 1:-1], ops.zeros((), hidden.dtype))


@keras.saving.register_keras_serializable(PACKAGE)
class MeanOfWords(keras.layers.Layer):
    """Averages the output of `WithoutMarkers`; returns zeros for a text without words."""

    def call(self, words: Tensor, padding_mask: Tensor) -> Tensor:
        """Maps (batch, words, width) and the mask (batch, words + 2) to (batch, width)."""
        # In float32: bfloat16 counts only to 256.
        count = ops.sum(ops.cast(padding_mask[:, 2:], "float32"), axis=1, keepdims=True)
        mean = ops.sum(ops.cast(words, "float32"), axis=1) / ops.maximum(count, 1.0)
        return ops.cast(mean, words.dtype)


def last_real(vectors: Tensor, padding_mask: Tensor) -> Tensor:
    """Selects the vector of each row's last real token: (batch, length, hidden) to (batch, hidden).

    A row that is all padding returns its first vector.
    """
    places = ops.arange(ops.shape(vectors)[1])
    # Not `ops.max`, which rejects an empty batch.
    last = ops.argmax(ops.where(padding_mask, places[None], -1), axis=1)  # (batch,)
    return ops.squeeze(ops.take_along_axis(vectors, last[:, None, None], axis=1), axis=1)


def _weighted_sum(vectors: Tensor, weights: Tensor) -> Tensor:
    """Adds vectors (batch, length, hidden) with weights (batch, length): (batch, hidden)."""
    return ops.sum(vectors * ops.cast(weights, vectors.dtype)[:, :, None], axis=1)


def _count(weights: Tensor, dtype: str) -> Tensor:
    """Adds weights (batch, length), each 1 or more: (batch, 1), 1 for a row without weights."""
    return ops.maximum(ops.sum(ops.cast(weights, dtype), axis=1, keepdims=True), 1)
