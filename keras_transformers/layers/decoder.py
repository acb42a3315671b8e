"""The Transformer's decoder layer ("Attention Is All You Need", section 3.1)."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers.attention import KeysValues, MultiHeadAttention, extend_cache
from keras_transformers.layers.dense import PACKAGE, Activation
from keras_transformers.layers.feed_forward import FeedForward
from keras_transformers.layers.memory.recomputation import RecomputableLayer
from keras_transformers.layers.residual import (
    Norm,
    NormPosition,
    check_norm_position,
    norm_layer,
    residual,
)

__all__ = ["DecoderLayer"]


@keras.saving.register_keras_serializable(PACKAGE)
class DecoderLayer(RecomputableLayer):
    """Applies causal self-attention, cross-attention to the encoder's output and feed-forward.

    Args:
        num_heads: number of heads of both attentions.
        hidden_dim: width of inputs and outputs.
        intermediate_dim: inner width of the feed-forward network.
        dropout: rate on the output of each sub-layer, before the residual sum.
        attention_dropout: rate on the attention probabilities.
        feed_forward_dropout: rate inside the feed-forward network.
        activation: activation of the feed-forward network.
        norm_position: "post" (the paper) or "pre".
        norm_epsilon: added to the variance in every norm.
        use_attention_bias: whether the attention projections have biases.
        head_dim: width of a head; hidden_dim / num_heads by default.
        scale_scores: whether attention scores are divided by sqrt(head_dim); T5's are not.
        gated_feed_forward: whether the feed-forward network is gated (T5 1.1).
        use_feed_forward_bias: whether the feed-forward network has biases.
        norm: "layer", or "rms" without mean and bias (T5).
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
        }
        self.num_heads = num_heads
        self.norm_position = norm_position
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.self_attention, self.cross_attention = (
            MultiHeadAttention(
                num_heads,
                hidden_dim,
                head_dim=head_dim,
                scale_scores=scale_scores,
                attention_dropout=attention_dropout,
                use_bias=use_attention_bias,
                kernel_initializer=self.kernel_initializer,
                dtype=self.dtype_policy,
                name=name,
            )
            for name in ("self_attention", "cross_attention")
        )
        self.head_dim = self.self_attention.head_dim
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
        self.self_attention_norm, self.cross_attention_norm, self.feed_forward_norm = (
            norm_layer(norm, norm_epsilon, dtype=self.dtype_policy, name=f"{name}_norm")
            for name in ("self_attention", "cross_attention", "feed_forward")
        )
        self.self_attention_dropout, self.cross_attention_dropout, self.feed_forward_dropout = (
            keras.layers.Dropout(dropout, dtype=self.dtype_policy, name=f"{name}_dropout")
            for name in ("self_attention", "cross_attention", "feed_forward")
        )

    def build(self, inputs_shape: Any, encoder_output_shape: Any) -> None:
        """Builds the sub-layers."""
        self.self_attention.build(inputs_shape)
        self.cross_attention.build(inputs_shape, encoder_output_shape)
        self.feed_forward.build(inputs_shape)
        for norm in (self.self_attention_norm, self.cross_attention_norm, self.feed_forward_norm):
            norm.build(inputs_shape)
        for dropout in (
            self.self_attention_dropout,
            self.cross_attention_dropout,
            self.feed_forward_dropout,
        ):
            dropout.build(inputs_shape)

    def call(
        self,
        inputs: Any,
        encoder_output: Any,
        *,
        attention_mask: Any = None,
        attention_bias: Any = None,
        cross_attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Decodes all positions at once (teacher forcing).

        Args:
            inputs: (batch, target, hidden).
            encoder_output: (batch, source, hidden).
            attention_mask: self-attention mask, combined with the causal one: (batch, target) or
                (batch, target, target). Padding at the end needs no mask, because no earlier
                position sees it.
            attention_bias: added to the scores of self-attention, as relative positions do
                (batch, heads, target, target); axes of size 1 broadcast.
            cross_attention_mask: True at source positions that may be seen; usually the source's
                padding mask (batch, source).
            return_attention_scores: also return the cross-attention probabilities.
            training: whether to apply dropout.

        Returns:
            (batch, target, hidden); with `return_attention_scores`, also the probabilities
            (batch, heads, target, source).
        """

        def decode(inputs: Any, encoder_output: Any, attention_bias: Any) -> tuple[Any, Any]:
            def attend_to_past(x: Any) -> tuple[Any, Any]:
                attended = self.self_attention(
                    x,
                    attention_mask=attention_mask,
                    use_causal_mask=True,
                    attention_bias=attention_bias,
                    training=training,
                )
                return attended, None

            def attend_to_source(x: Any) -> tuple[Any, Any]:
                attended = self.cross_attention(
                    x,
                    encoder_output,
                    attention_mask=cross_attention_mask,
                    return_attention_scores=return_attention_scores,
                    training=training,
                )
                return attended if return_attention_scores else (attended, None)

            return self._sublayers(inputs, attend_to_past, attend_to_source, training)

        tensors = inputs, encoder_output, attention_bias
        if self.recomputes and training and not return_attention_scores:
            return self.recomputed(lambda *given: decode(*given)[0], *tensors)
        output, scores = decode(*tensors)
        return (output, scores) if return_attention_scores else output

    def compute_output_spec(
        self,
        inputs: Any,
        encoder_output: Any,
        *,
        attention_mask: Any = None,
        attention_bias: Any = None,
        cross_attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Returns the shapes and dtypes of `call`'s results; tracing `call` for them is slow."""
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if return_attention_scores:
            return output, self.cross_attention.scores_spec(inputs, encoder_output)
        return output

    def step(
        self,
        inputs: Any,
        *,
        cache: KeysValues,
        cross_keys_values: KeysValues,
        cross_attention_mask: Any = None,
        attention_bias: Any = None,
        index: Any = None,
    ) -> tuple[Any, KeysValues]:
        """Decodes one position as `call` would, from cached keys and values.

        A sentence's beams share its cross-attention keys and values without copying them.

        Args:
            inputs: vectors of the position (batch, beams, hidden).
            cache: self-attention keys and values of the earlier positions, each
                (batch * beams, heads, length, head_dim); see `empty_cache`.
            cross_keys_values: `cross_attention.keys_values(encoder_output)`, each
                (batch, heads, source, head_dim).
            cross_attention_mask: (batch, source), True at real tokens.
            attention_bias: added to the scores of self-attention (1, heads, 1, length), where the
                length is the cache's with this position.
            index: the position, if the cache has a fixed length; None if it grows.

        Returns:
            (batch, beams, hidden), and the cache with this position added.
        """
        rows_shape = (-1, 1, inputs.shape[-1])
        extended = cache

        def attend_to_past(x: Any) -> tuple[Any, Any]:
            nonlocal extended
            rows = ops.reshape(x, rows_shape)  # (batch * beams, 1, hidden)
            extended, mask = extend_cache(cache, self.self_attention.keys_values(rows), index)
            attended = self.self_attention(
                rows, keys_values=extended, attention_mask=mask, attention_bias=attention_bias
            )
            return ops.reshape(attended, ops.shape(x)), None

        def attend_to_source(x: Any) -> tuple[Any, Any]:
            attended = self.cross_attention(
                x, keys_values=cross_keys_values, attention_mask=cross_attention_mask
            )
            return attended, None

        output, _ = self._sublayers(inputs, attend_to_past, attend_to_source, False)
        return output, extended

    def _sublayers(
        self, inputs: Any, attend_to_past: Any, attend_to_source: Any, training: bool | None
    ) -> tuple[Any, Any]:
        """Runs the three residual sub-layers; also returns the second one's attention scores."""
        common: dict[str, Any] = {"norm_position": self.norm_position, "training": training}
        hidden, _ = residual(
            inputs,
            attend_to_past,
            norm=self.self_attention_norm,
            dropout=self.self_attention_dropout,
            **common,
        )
        hidden, scores = residual(
            hidden,
            attend_to_source,
            norm=self.cross_attention_norm,
            dropout=self.cross_attention_dropout,
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

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        initializer = keras.initializers.serialize(self.kernel_initializer)
        return super().get_config() | self._arguments | {"kernel_initializer": initializer}
