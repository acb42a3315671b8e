"""Word vectors from characters: ELMo's convolutions and highway layers (Kim et al. 2016)."""

from collections.abc import Sequence
from typing import Any, Literal

import keras
from keras import ops

from keras_transformers.layers.composite import CompositeLayer
from keras_transformers.layers.dense import PACKAGE, RowDense
from keras_transformers.layers.recurrent.cells import at_least_one
from keras_transformers.layers.tensors import Shape, Tensor

__all__ = ["CharacterCNN", "Highway"]

CnnActivation = Literal["relu", "tanh"]


@keras.saving.register_keras_serializable(PACKAGE)
class CharacterCNN(keras.layers.Layer):
    """Embeds a word's characters, convolves them at several widths and max-pools each filter.

    As in bilm-tf, the convolutions use no padding, the maximum includes the padding of short words,
    and the activation comes after the maximum.

    Args:
        filters: (width in characters, number of filters) pairs.
        num_characters: number of character ids; id 0 is for padding tokens.
        embedding_dim: width of the character embeddings.
        activation: "relu" or "tanh"; as in bilm-tf, it also determines the filters' initializer.

    Raises:
        ValueError: no filters, or an unknown activation.

    Example:
        >>> layer = CharacterCNN([(1, 4), (3, 6)], num_characters=262, embedding_dim=8)
        >>> layer(keras.ops.ones((2, 5, 50), "int32")).shape
        TensorShape([2, 5, 10])
    """

    def __init__(
        self,
        filters: Sequence[Sequence[int]],
        *,
        num_characters: int,
        embedding_dim: int,
        activation: CnnActivation = "relu",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not filters:
            raise ValueError("filters is empty: pass (width, number) pairs, such as [(1, 32)]")
        if activation not in ("relu", "tanh"):
            raise ValueError(f"activation={activation!r} is unknown: use 'relu' or 'tanh'")
        self.filters = [(int(width), int(number)) for width, number in filters]
        self.num_characters = num_characters
        self.embedding_dim = embedding_dim
        self.activation = activation
        self.output_dim = sum(number for _, number in self.filters)

    def build(self, input_shape: Shape) -> None:
        """Creates the weights.

        Raises:
            ValueError: a filter is wider than a word.
        """
        widest = max(width for width, _ in self.filters)
        if input_shape[-1] is not None and widest > input_shape[-1]:
            raise ValueError(
                f"a filter is {widest} characters wide, but words have only {input_shape[-1]}"
            )
        uniform = keras.initializers.RandomUniform
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.num_characters, self.embedding_dim),
            initializer=uniform(-1.0, 1.0),
            autocast=False,  # as in `embeddings`
        )
        self.kernels, self.biases = [], []
        for index, (width, number) in enumerate(self.filters):
            scale = (width * self.embedding_dim) ** -0.5
            normal = keras.initializers.RandomNormal(stddev=scale)
            self.kernels.append(
                self.add_weight(
                    name=f"kernel_{index}",
                    shape=(width, self.embedding_dim, number),
                    initializer=uniform() if self.activation == "relu" else normal,
                )
            )
            self.biases.append(
                self.add_weight(name=f"bias_{index}", shape=(number,), initializer="zeros")
            )

    def call(self, character_ids: Tensor) -> Tensor:
        """Maps ids (batch, tokens, characters) to (batch, tokens, output_dim)."""
        batch, tokens, characters = ops.shape(character_ids)
        words = at_least_one(ops.reshape(character_ids, (batch * tokens, characters)))
        # (words, characters, embedding)
        vectors = ops.take(ops.convert_to_tensor(self.embeddings), words, axis=0)
        vectors = ops.cast(vectors, self.compute_dtype)
        maxima = [
            ops.max(ops.conv(vectors, kernel, data_format="channels_last"), axis=1) + bias
            for kernel, bias in zip(self.kernels, self.biases, strict=True)
        ]
        joined = ops.concatenate(maxima, axis=-1)
        outputs = ops.relu(joined) if self.activation == "relu" else ops.tanh(joined)
        return ops.reshape(outputs[: batch * tokens], (batch, tokens, self.output_dim))

    def compute_output_spec(self, character_ids: Tensor) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        shape = (*character_ids.shape[:2], self.output_dim)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "filters": self.filters,
            "num_characters": self.num_characters,
            "embedding_dim": self.embedding_dim,
            "activation": self.activation,
        }


@keras.saving.register_keras_serializable(PACKAGE)
class Highway(CompositeLayer):
    """`g * relu(W x + b) + (1 - g) * x` with `g = sigmoid(V x + c)` (Srivastava et al. 2015).

    As in bilm-tf, c starts at -2, so at first the layer passes its inputs almost unchanged.
    """

    def build(self, input_shape: Shape) -> None:
        """Builds both dense layers, as wide as the inputs."""
        width = input_shape[-1]
        bias = {"carry": keras.initializers.Constant(-2.0), "transform": "zeros"}
        self.carry, self.transform = (
            RowDense(
                width,
                activation=activation,
                kernel_initializer=keras.initializers.RandomNormal(stddev=width**-0.5),
                bias_initializer=bias[name],
                dtype=self.dtype_policy,
                name=name,
            )
            for name, activation in (("carry", "sigmoid"), ("transform", "relu"))
        )
        self.carry.build(input_shape)
        self.transform.build(input_shape)

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (..., features) to the same shape."""
        gate = self.carry(inputs)
        return inputs + gate * (self.transform(inputs) - inputs)
