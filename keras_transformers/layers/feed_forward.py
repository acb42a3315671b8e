"""The position-wise feed-forward network ("Attention Is All You Need", section 3.3)."""

from typing import Any

import keras

from keras_transformers.layers.composite import CompositeLayer
from keras_transformers.layers.dense import PACKAGE, Activation, RowDense, activation_function

__all__ = ["FeedForward"]


@keras.saving.register_keras_serializable(PACKAGE)
class FeedForward(CompositeLayer):
    """Applies two dense layers at every position: `activation(x W1 + b1) W2 + b2`.

    Args:
        intermediate_dim: the inner width, the paper's d_ff.
        hidden_dim: the outer width, the paper's d_model.
        activation: applied between the two; "gelu" is exact (erf), "gelu_approximate" uses tanh.
        dropout: rate on the inner activations (0 in BERT, 0.1 in the Annotated Transformer).
        kernel_initializer: initializer of both layers' matrices.
    """

    def __init__(
        self,
        intermediate_dim: int,
        hidden_dim: int,
        *,
        activation: Activation = "relu",
        dropout: float = 0.0,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.hidden_dim = hidden_dim
        self.activation = activation
        self.dropout_rate = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.intermediate = RowDense(
            intermediate_dim,
            activation=activation_function(activation),
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="intermediate",
        )
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.output_projection = RowDense(
            hidden_dim,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="output",
        )

    def build(self, input_shape: Any) -> None:
        """Builds both dense layers."""
        self.intermediate.build(input_shape)
        self.output_projection.build((*input_shape[:-1], self.intermediate_dim))

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Maps (..., features) to (..., hidden_dim)."""
        inner = self.dropout(self.intermediate(inputs), training=training)
        return self.output_projection(inner)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "intermediate_dim": self.intermediate_dim,
            "hidden_dim": self.hidden_dim,
            "activation": self.activation,
            "dropout": self.dropout_rate,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
