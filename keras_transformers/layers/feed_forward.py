"""Defines the position-wise feed-forward network ("Attention Is All You Need", section 3.3)."""

from typing import Any

import keras

from keras_transformers.layers.composite import CompositeLayer
from keras_transformers.layers.dense import PACKAGE, Activation, RowDense, activation_function
from keras_transformers.layers.tensors import Initializer, Shape, Tensor

__all__ = ["FeedForward"]


@keras.saving.register_keras_serializable(PACKAGE)
class FeedForward(CompositeLayer):
    """Applies two dense layers at every position: `activation(x W1 + b1) W2 + b2`.

    A gated network multiplies the inner activations by a third layer, `x V`: (activation(x W1) *
    x V) W2. Shazeer 2020, "GLU Variants Improve Transformer".

    Args:
        intermediate_dim: the inner width, the paper's d_ff.
        hidden_dim: the outer width, the paper's d_model.
        activation: applied between the two; "gelu" is exact (erf), "gelu_approximate" uses tanh.
        dropout: rate on the inner activations (0 in BERT, 0.1 in the Annotated Transformer).
        gated: whether there is the third layer (T5 1.1).
        use_bias: whether the dense layers have biases.
        kernel_initializer: initializer of the layers' matrices.
    """

    def __init__(
        self,
        intermediate_dim: int,
        hidden_dim: int,
        *,
        activation: Activation = "relu",
        dropout: float = 0.0,
        gated: bool = False,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.hidden_dim = hidden_dim
        self.activation = activation
        self.dropout_rate = dropout
        self.gated = gated
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.intermediate = self._dense(
            "intermediate", intermediate_dim, activation_function(activation)
        )
        self.gate = self._dense("gate", intermediate_dim) if gated else None
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.output_projection = self._dense("output", hidden_dim)

    def _dense(self, name: str, width: int, activation: Tensor | None = None) -> RowDense:
        return RowDense(
            width,
            activation=activation,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, input_shape: Shape) -> None:
        """Builds the dense layers."""
        self.intermediate.build(input_shape)
        if self.gate is not None:
            self.gate.build(input_shape)
        inner_shape = (*input_shape[:-1], self.intermediate_dim)
        self.dropout.build(inner_shape)
        self.output_projection.build(inner_shape)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns (..., hidden_dim)."""
        return (*input_shape[:-1], self.hidden_dim)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Maps (..., features) to (..., hidden_dim)."""
        inner = self.intermediate(inputs)
        if self.gate is not None:
            inner = inner * self.gate(inputs)
        return self.output_projection(self.dropout(inner, training=training))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "intermediate_dim": self.intermediate_dim,
            "hidden_dim": self.hidden_dim,
            "activation": self.activation,
            "dropout": self.dropout_rate,
            "gated": self.gated,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
