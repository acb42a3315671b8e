"""The layer that BERT, ViT, the Transformer's encoder and, with a causal mask, GPT consist of."""

from collections.abc import Callable
from typing import Any

import keras

from keras_transformers.layers.attention import MultiHeadAttention
from keras_transformers.layers.dense import PACKAGE, Activation
from keras_transformers.layers.feed_forward import FeedForward
from keras_transformers.layers.masks import TokenRows
from keras_transformers.layers.memory.recomputation import RecomputableLayer
from keras_transformers.layers.residual import (
    Norm,
    NormPosition,
    check_norm_position,
    norm_layer,
    residual,
)

__all__ = ["EncoderLayer"]


@keras.saving.register_keras_serializable(PACKAGE)
class EncoderLayer(RecomputableLayer):
    """Applies self-attention and feed-forward, each with dropout, a residual sum and a norm.

    Args:
        num_heads: number of attention heads.
        hidden_dim: width of inputs and outputs.
        intermediate_dim: inner width of the feed-forward network.
        dropout: rate on the output of each sub-layer, before the residual sum.
        attention_dropout: rate on the attention probabilities.
        feed_forward_dropout: rate inside the feed-forward network.
        activation: activation of the feed-forward network.
        norm_position: "post" is the paper's `norm(x + sublayer(x))`; "pre" is
            `x + sublayer(norm(x))` and needs one more norm after the last layer.
        norm_epsilon: added to the variance in both norms.
        use_attention_bias: whether the attention projections have biases.
        head_dim: width of a head; hidden_dim / num_heads by default.
        scale_scores: whether attention scores are divided by sqrt(head_dim); T5's are not.
        gated_feed_forward: whether the feed-forward network is gated (T5 1.1).
        use_feed_forward_bias: whether the feed-forward network has biases.
        norm: "layer", or "rms" without mean and bias (T5).
        use_causal_mask: whether position i sees only positions 0 to i.
        kernel_initializer: initializer of all matrices.
    """

    def __init__(
        self,
        *,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        feed_forward_dropout: float = 0.0,
        activation: Activation = "relu",
        norm_position: NormPosition = "post",
        norm_epsilon: float = 1e-6,
        use_attention_bias: bool = True,
        head_dim: int | None = None,
        scale_scores: bool = True,
        gated_feed_forward: bool = False,
        use_feed_forward_bias: bool = True,
        norm: Norm = "layer",
        use_causal_mask: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_norm_position(norm_position)
        self._arguments = {
            "num_heads": num_heads,
            "hidden_dim": hidden_dim,
            "intermediate_dim": intermediate_dim,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "feed_forward_dropout": feed_forward_dropout,
            "activation": activation,
            "norm_position": norm_position,
            "norm_epsilon": norm_epsilon,
            "use_attention_bias": use_attention_bias,
            "head_dim": head_dim,
            "scale_scores": scale_scores,
            "gated_feed_forward": gated_feed_forward,
            "use_feed_forward_bias": use_feed_forward_bias,
            "norm": norm,
            "use_causal_mask": use_causal_mask,
        }
        self.norm_position = norm_position
        self.use_causal_mask = use_causal_mask
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.self_attention = MultiHeadAttention(
            num_heads,
            hidden_dim,
            head_dim=head_dim,
            scale_scores=scale_scores,
            attention_dropout=attention_dropout,
            use_bias=use_attention_bias,
            kernel_initializer=self.kernel_initializer,
            dtype=self.dtype_policy,
            name="self_attention",
        )
        self.self_attention_norm = norm_layer(
            norm, norm_epsilon, dtype=self.dtype_policy, name="self_attention_norm"
        )
        self.feed_forward = FeedForward(
            intermediate_dim,
            hidden_dim,
            activation=activation,
            dropout=feed_forward_dropout,
            gated=gated_feed_forward,
            use_bias=use_feed_forward_bias,
            kernel_initializer=self.kernel_initializer,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.feed_forward_norm = norm_layer(
            norm, norm_epsilon, dtype=self.dtype_policy, name="feed_forward_norm"
        )
        self.self_attention_dropout, self.feed_forward_dropout = (
            keras.layers.Dropout(dropout, dtype=self.dtype_policy, name=f"{name}_dropout")
            for name in ("self_attention", "feed_forward")
        )

    def build(self, input_shape: Any) -> None:
        """Builds the sub-layers."""
        self.self_attention.build(input_shape)
        self.self_attention_norm.build(input_shape)
        self.feed_forward.build(input_shape)
        self.feed_forward_norm.build(input_shape)
        for dropout in (self.self_attention_dropout, self.feed_forward_dropout):
            dropout.build(input_shape)

    def call(
        self,
        inputs: Any,
        *,
        attention_mask: Any = None,
        attention_bias: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Encodes all positions.

        Args:
            inputs: (batch, length, hidden).
            attention_mask: True where a query may attend. See `MultiHeadAttention.call`.
            attention_bias: added to the scores (batch, heads, query, key); axes of size 1
                broadcast.
            return_attention_scores: also return the attention probabilities.
            training: whether to apply dropout.

        Returns:
            (batch, length, hidden); with `return_attention_scores`, also the probabilities
            (batch, heads, length, length).
        """

        def encode(inputs: Any, attention_bias: Any) -> tuple[Any, Any]:
            def attend(x: Any) -> tuple[Any, Any]:
                attended = self.self_attention(
                    x,
                    attention_mask=attention_mask,
                    use_causal_mask=self.use_causal_mask,
                    attention_bias=attention_bias,
                    return_attention_scores=return_attention_scores,
                    training=training,
                )
                return attended if return_attention_scores else (attended, None)

            return self._sublayers(inputs, attend, training=training)

        if self.recomputes and training and not return_attention_scores:
            return self.recomputed(lambda *given: encode(*given)[0], inputs, attention_bias)
        output, scores = encode(inputs, attention_bias)
        return (output, scores) if return_attention_scores else output

    def encode_rows(
        self, rows: TokenRows, project: Callable[[Any], Any], attention_bias: Any = None
    ) -> TokenRows:
        """Encodes real tokens as `call` does in inference; padding costs nothing but its scores.

        Args:
            rows: the real tokens, (tokens, hidden).
            project: maps tokens by `self_attention.joined_weights()`.
            attention_bias: See `call`.
        """
        output, _ = self._sublayers(
            rows.values,
            lambda x: (
                self.self_attention.attend_rows(x, rows.layout, project, attention_bias),
                None,
            ),
            training=False,
        )
        return TokenRows(output, rows.layout)

    def _sublayers(
        self, inputs: Any, attend: Callable[[Any], tuple[Any, Any]], *, training: bool | None
    ) -> tuple[Any, Any]:
        common: dict[str, Any] = {"norm_position": self.norm_position, "training": training}
        hidden, scores = residual(
            inputs,
            attend,
            norm=self.self_attention_norm,
            dropout=self.self_attention_dropout,
            **common,
        )
        output, _ = residual(
            hidden,
            lambda x: (self.feed_forward(x, training=training), None),
            norm=self.feed_forward_norm,
            dropout=self.feed_forward_dropout,
            **common,
        )
        return output, scores

    def compute_output_spec(
        self,
        inputs: Any,
        *,
        attention_mask: Any = None,
        attention_bias: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Returns the shapes and dtypes of `call`'s results; tracing `call` for them is slow."""
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if return_attention_scores:
            return output, self.self_attention.scores_spec(inputs, inputs)
        return output

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        initializer = keras.initializers.serialize(self.kernel_initializer)
        return super().get_config() | self._arguments | {"kernel_initializer": initializer}
